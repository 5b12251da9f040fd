"""Record in a `Trail` how far a tracing attempt is: its graph nodes and guards, and the exception that is raised or handled.

Torch: `exn_vt_stack` of `InstructionTranslatorBase`, which the frames of an attempt share, `graph` and `guards` of
`OutputGraph`.
"""

from __future__ import annotations

import operator
from array import array
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from dynx._bytecode.trail import NOTHING, Attempt, Trail
from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.trace_log.value_text import OPEN, TENSOR, ValueTexts
from dynx._torch.tracing.render import show

_KNOWN = frozenset({"torch", "torch._C", "torch._C._nn", "torch.functional", "torch.nn.functional", "_operator"})
_IN_PLACE = frozenset({"setitem", "delitem", *(name for name in dir(operator) if name[0] == "i" and name[1:] in dir(operator))})


@dataclass(slots=True)
class _LoggedGraph:
    number: int  # index of the graph in the trail
    indices: dict[Any, int]  # index of each node in the recorded graph
    newest_input: Any  # last placeholder node, or the root


class AttemptProgress:
    """The progress of one tracing attempt; stored on its `OutputGraph` and freed with it.

    Attributes:
        attempt: The record of the attempt in the trail, the log of the trace.
        texts: The cached texts of variables; `update` invalidates those that new nodes or guards may have changed.
        number: Index in the trail of the newest record of the attempt's progress.
        has_exception: Whether traced code raises or handles an exception.
    """

    __slots__ = (
        *("_graph", "_graphs", "_guards", "_newest", "_nodes", "_read_shapes", "_requested", "_shapes"),
        *("_trail", "attempt", "has_exception", "number", "texts"),
    )

    def __init__(self, trail: Trail, attempt: Attempt) -> None:
        self.attempt, self.texts, self.number = attempt, ValueTexts(trail), NOTHING
        self._trail = trail
        self._graphs: dict[Any, _LoggedGraph] = {}
        self._graph: Any = None
        self._guards: Any = ()
        self._shapes: list[Any] = []
        self._nodes = self._requested = self._read_shapes = 0  # how many are recorded
        self.has_exception = False
        self._newest: tuple[int, int, int, int] | None = None  # the progress of `number`

    def is_unchanged_by_reading(self, tx: Any) -> bool:
        """Return whether there is nothing new to record: no new node or guard, and no exception.

        Faster than `update`, but misses a change of graph: call it only if the instruction read values or filled a container.
        """
        return (
            self._graph._len == self._nodes
            and len(self._guards) == self._requested
            and len(self._shapes) == self._read_shapes
            and not self.has_exception
            and tx.exn_vt_stack._current_exception is None
        )

    def update(self, tx: Any, row: int) -> None:
        """Record the exception, and the new nodes and guards, which were added before row `row` of the trail (the log)."""
        output, handled = tx.output, tx.exn_vt_stack
        graph, guards = output.tracers[-1].graph, output.tracing_context.guards_context.dynamo_guards.inner
        if (
            graph is self._graph
            and graph._len == self._nodes
            and guards is self._guards
            and len(guards) == self._requested
            and len(self._shapes) == self._read_shapes
            and not self.has_exception
            and handled._current_exception is None
            and not len(handled)
        ):
            return
        self._shapes = tx.output.tracing_context.fake_mode.shape_env.guards
        may_change_text = False
        if graph is not self._graph or graph._len != self._nodes:
            may_change_text = self._read_nodes(tx, graph)
        if len(self._shapes) != self._read_shapes:
            new = self._shapes[self._read_shapes :]
            self.attempt.shapes.extend((self._trail.text(str(guard.expr)), row - 1) for guard in new)
            self._read_shapes = len(self._shapes)
            may_change_text = True
        has_new_guards = guards is not self._guards or len(guards) != self._requested
        if has_new_guards:
            self._read_guards(guards, row - 1 if self.attempt.rows else NOTHING)
        if may_change_text or has_new_guards:
            self.texts.may_have_changed(TENSOR if may_change_text else OPEN)
        self.has_exception = handled._current_exception is not None or len(handled) > 0
        exception = self._exception(tx) if self.has_exception else NOTHING
        progress = self._graphs[graph].number, self._nodes, self._requested, exception
        if progress != self._newest:
            self._newest, self.number = progress, self._trail.add_progress(progress)

    def rename_newest_node(self, tx: Any) -> None:
        """Record the new name of the last graph node: Dynamo names it after the local that its value is assigned to."""
        graph = tx.output.tracers[-1].graph
        logged, node = self._graphs.get(graph), graph._root._prev
        if logged is not None and node in logged.indices:
            log, index = self._trail.graphs[logged.number], logged.indices[node]
            if not self._trail.texts[log[index]].startswith(f"{node.name} ="):
                log[index] = self._trail.text(_node_text(node))

    def _read_nodes(self, tx: Any, graph: Any) -> bool:
        """Record new graph nodes in the order of the graph; record the whole graph again if nodes were removed.

        Return whether the new nodes may change the text of an existing tensor or symbolic number.

        Torch: nodes are a linked list whose root follows the last node; a new placeholder is inserted after the last one.
        """
        logged, self._graph, self._nodes = self._graphs.get(graph), graph, graph._len
        if logged is not None and graph._len == len(logged.indices):
            return False
        any_may = bool(tx.output.tracing_context.fake_mode.shape_env.var_to_range)  # symbolic sizes may be replaced
        may_change_text = any_may
        if logged is None or graph._len < len(logged.indices):
            logged = self._graphs[graph] = _LoggedGraph(len(self._trail.graphs), {}, graph._root)
            self._trail.graphs.append(array("i"))
            may_change_text = True
        recorded = logged.indices
        last, node = [], graph._root._prev
        while node is not graph._root and node not in recorded:
            last.append(node)
            node = node._prev
        inputs: dict[Any, None] = {}
        for start in (logged.newest_input, graph._root):
            node = start._next
            while len(recorded) + len(inputs) + len(last) < graph._len and node is not graph._root:
                if node not in recorded:
                    inputs[node] = None
                node = node._next
        log = self._trail.graphs[logged.number]
        for node in (*inputs, *reversed(last)):
            recorded[node] = len(log)
            log.append(self._trail.text(_node_text(node)))
            if node.op == "placeholder":
                logged.newest_input = node
            may_change_text = may_change_text or _may_change_tensors(node)
        return may_change_text

    def _read_guards(self, guards: Any, requested_by: int) -> None:
        """Record the guards that were added since the last call; `requested_by` is the row of the requesting instruction."""
        text, recorded = self._trail.text, self.attempt.guards
        self._guards, self._requested = guards, len(guards)
        new = [*islice(reversed(guards), max(len(guards) - len(recorded) // 3, 0))]
        for guard in reversed(new):
            recorded.extend((text(guard.create_fn_name()), text(guard_source(guard.originating_source)), requested_by))

    def _exception(self, tx: Any) -> int:
        handled = tx.exn_vt_stack
        if handled._current_exception is not None:
            return self._trail.text(f"raised {show(tx, handled._current_exception)}")
        return self._trail.text(f"handling {show(tx, handled[-1])}")


def _may_change_tensors(node: Any) -> bool:
    """Return whether a graph node may change the sizes, the dtype or requires_grad of an existing tensor.

    Torch: in-place operations have names that end with an underscore, or are in-place functions of `operator`. Operations of
    `nn.functional` with `inplace=True` change values only, and Dynamo breaks the graph if `out` would be resized. Operations of
    other modules (higher-order operators, custom operators) may do anything.
    """
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.op == "call_method":
        name = node.target
    elif node.op == "call_function" and (getattr(node.target, "__module__", "") or "torch") in _KNOWN:
        name = getattr(node.target, "__name__", "_")
    else:
        return True
    return name.endswith("_") or (name in _IN_PLACE and node.op == "call_function")


def _node_text(node: Any) -> str:
    """Return an FX node as a line of code, such as `add = torch.add(x, 1)`."""
    args = [str(argument) for argument in node.args]
    keywords = [f"{name}={argument}" for name, argument in node.kwargs.items()]
    if node.op == "placeholder":
        return f"{node.name} = input {node.target}"
    if node.op == "get_attr":
        return f"{node.name} = self.{node.target}"
    if node.op == "call_method":
        return f"{node.name} = {args[0]}.{node.target}({', '.join([*args[1:], *keywords])})"
    if node.op == "output":
        return f"return {', '.join(args)}"
    return f"{node.name} = {_target(node.target)}({', '.join([*args, *keywords])})"


@cache
def _target(target: Any) -> str:
    name = getattr(target, "__name__", None)
    if name is None or not hasattr(target, "__module__"):
        return str(target)
    module = (target.__module__ or "torch").removeprefix("_")
    return f"{module}.{name}"
