"""Measure the tracing time, graph nodes, guards and exceptions of each source line that Dynamo traces.

Torch: `InstructionTranslatorBase.step` traces one instruction, including the functions that it inlines (a step);
`OutputGraph.call_user_compiler` runs the backend within the step of the last instruction.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType
from typing import Any

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.capabilities import hook_point
from dynx._torch.trace_log.steps import StepHook
from dynx._torch.tracing import translator
from dynx._torch.tracing.stack import RawFrame

Line = tuple[CodeType, int]


@dataclass(slots=True)
class RawNode:
    """A node of a traced graph: its name, and the stack of source lines at which it was created, innermost function first.

    Dynamo renames a node whose value is assigned to a local: `name` is final once the graph is passed to the backend.
    """

    name: str
    lines: tuple[Line, ...]
    node: Callable[[], Any]  # a weak reference

    def is_in_final_graph(self) -> bool:
        """Update `name`, and return whether Dynamo has kept the node in its graph. A node that was freed counts as kept."""
        if (node := self.node()) is None:
            return True
        self.name = str(node.name)
        return not node._erased


@dataclass(slots=True)
class RawLine:
    """The measurements of one source line in one tracing attempt: time, graph nodes, guards and exceptions."""

    instructions: int = 0
    seconds: float = 0.0  # excluding inlined functions and the backend
    cumulative: float = 0.0  # including them
    exceptions: int = 0
    nodes: list[RawNode] = field(default_factory=list)
    guards: dict[tuple[str, str], None] = field(default_factory=dict)  # kind and source, in order of the requests
    shape_guards: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RawAttempt:
    """The measurements of one tracing attempt of a compilation, by source line."""

    trace_id: translator.TraceId
    root: RawFrame
    lines: dict[Line, RawLine] = field(default_factory=lambda: defaultdict(RawLine))
    backend: float = 0.0  # seconds

    def finish_nodes(self) -> None:
        """Update the names of all nodes, and drop nodes that Dynamo has removed from their graph."""
        for line in self.lines.values():
            line.nodes[:] = filter(RawNode.is_in_final_graph, line.nodes)


@dataclass(slots=True)
class _Progress:
    """A tracing attempt, and for each of its graphs the newest node already seen: only later nodes are credited to a line."""

    attempt: RawAttempt
    newest: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _State:
    """The instruction (step) that a thread is tracing: the seconds of steps nested in it, and the guards that it requested."""

    inner: float = 0.0
    depth: int = 0
    output: Callable[[], Any] = lambda: None  # a weak reference: nothing of torch is kept alive
    attempt: RawAttempt = field(default_factory=lambda: RawAttempt(translator.TraceId("", 0), RawFrame("", 0, "")))
    tx: Any = None  # the translator of the step
    newest: Any = None  # newest node credited to a line; nothing is to be credited while it is the last of its graph
    failed: BaseException | None = None
    requested: list[tuple[str, str]] = field(default_factory=list)


class _Thread(threading.local):
    """The `_State` of each thread, in a separate object since attributes of thread-local objects are slow to read."""

    def __init__(self) -> None:
        self.state = _State()


class TracingClock(Handle):
    """A handle that measures every line Dynamo traces until it is removed; `attempts` holds the measurements."""

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self.attempts: list[RawAttempt] = []
        self._name = f"_dynx_attempt_{id(self)}"
        self._thread = _Thread()
        self._is_on = True
        self._handles: list[Handle] = [
            StepHook(self._around_step),
            hooks.wrap(hook_point("backend"), self._around_backend),
            hooks.subscribe(hook_point("guard_added"), self._guard_added, on_error=report),
        ]

    def remove(self) -> None:
        """Remove the hooks; the measurements stay in `attempts`."""
        self._is_on = False
        for handle in self._handles:
            handle.remove()

    def _around_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        thread, enter, leave = self._thread, self._enter, self._leave

        def step(tx: Any) -> Any:
            if not self._is_on:
                return original(tx)
            state = thread.state
            outer = enter(state, tx)
            start = perf_counter()
            try:
                return original(tx)
            except BaseException as error:
                state.failed = error
                raise
            finally:
                leave(state, tx, perf_counter() - start, outer)

        return step

    def _enter(self, state: _State, tx: Any) -> tuple[Any, ...]:
        """Start to measure a step of Dynamo; return the measurements of the enclosing step so far, which `_leave` restores."""
        output = tx.output
        if output is not state.output():
            self._begin(state, tx)
        enclosing = state.tx
        if enclosing is not None and enclosing.output is output:
            if output.graph._root._prev is not state.newest:
                self._take_nodes(state, enclosing)
        else:
            vars(output)[self._name].newest.setdefault(output.graph, output.graph._root._prev)
        outer = (enclosing, len(output.shape_env.guards), state.inner, state.requested)
        state.tx, state.inner, state.requested, state.failed = tx, 0.0, [], None
        state.depth += 1
        return outer

    def _leave(self, state: _State, tx: Any, elapsed: float, outer: tuple[Any, ...]) -> None:
        enclosing, shapes, inner, requested = outer
        output = tx.output
        line = state.attempt.lines[tx.f_code, tx.lineno]
        line.instructions += 1
        line.seconds += elapsed - state.inner
        line.cumulative += elapsed
        if output.graph._root._prev is not state.newest:
            self._take_nodes(state, tx)
        if not state.inner:  # else they belong to lines of nested steps
            guards = output.shape_env.guards
            if len(guards) > shapes:
                line.shape_guards += [str(guard.expr) for guard in guards[shapes:]]
        if state.requested:
            line.guards.update(dict.fromkeys(state.requested))
        # an exception that the same frame catches does not leave the step
        if state.failed is None:
            line.exceptions += tx.current_instruction.opname == "RAISE_VARARGS"
        else:
            line.exceptions += type(state.failed).__name__.startswith("Observed")
        state.tx, state.inner, state.requested, state.failed = enclosing, inner + elapsed, requested, None
        state.depth -= 1
        if not state.depth:
            state.inner = 0.0
            state.newest = None  # nothing of torch is kept alive

    def _take_nodes(self, state: _State, tx: Any) -> None:
        """Count the nodes that were added to the graph since the last call of this method as nodes of the current line of `tx`.

        Torch: nodes are a linked list whose root follows the last node; placeholders are inserted before the other nodes.
        """
        graph, known = tx.output.graph, vars(tx.output)[self._name].newest
        newest, last = graph._root._prev, known.get(graph, graph._root)
        state.newest = newest
        if newest is last:
            return
        known[graph] = newest
        while last._erased:
            last = last._prev
        lines = tuple((each.f_code, each.lineno) for each in translator.chain(tx))
        added = []
        while newest is not last and newest is not graph._root:
            if newest.op not in ("placeholder", "output"):
                added.append(RawNode(str(newest.name), lines, weakref.ref(newest)))
            newest = newest._prev
        state.attempt.lines[tx.f_code, tx.lineno].nodes += reversed(added)

    def _around_backend(self, original: Callable[..., Any]) -> Callable[..., Any]:
        thread = self._thread

        def call_user_compiler(output: Any, *args: Any, **kwargs: Any) -> Any:
            state = thread.state
            state.attempt.finish_nodes()
            start = perf_counter()
            try:
                return original(output, *args, **kwargs)
            finally:
                elapsed = perf_counter() - start
                state.inner += elapsed  # so that it does not count as time of the line that returns
                state.attempt.backend += elapsed

        return call_user_compiler

    def _begin(self, state: _State, tx: Any) -> None:
        """Start to measure a new tracing attempt, or continue an attempt after a compilation nested in it."""
        state.output = weakref.ref(tx.output)
        progress = vars(tx.output).get(self._name)  # stored on the `OutputGraph`, so that it is freed with the attempt
        if progress is None:
            code = list(translator.chain(tx))[-1].f_code
            root = RawFrame(code.co_filename, code.co_firstlineno, code.co_qualname)
            progress = _Progress(RawAttempt(translator.trace_id(), root))
            setattr(tx.output, self._name, progress)
            self.attempts.append(progress.attempt)
        state.attempt = progress.attempt

    def _guard_added(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        guard = args[1] if len(args) > 1 else kwargs["guard"]
        self._thread.state.requested.append((guard.create_fn_name(), guard_source(guard.originating_source)))
