"""`debug(fn)`: a debugger that steps forward and back through Dynamo's trace of a function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any, Self

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.anew import compile_apart
from dynx._torch.trace_log.log import Recorder
from dynx._torch.trace_log.steps import StepHook, break_errors, is_new, logged_error
from dynx._torch.tracing import trace_rules, translator
from dynx._torch.tracing.graph_breaks import read_break
from dynx._trace.dispatch import trouble
from dynx.comptime._debug_commands import Debugger
from dynx.errors import UsageError


@trace_rules.not_traced
def debug(fn: Callable[..., Any], *, script: str | Iterable[str] | None = None, internals: bool = False) -> Callable[..., Any]:
    """Wrap `fn` so that a call compiles it and runs it, with a debugger that steps through Dynamo's trace of its bytecode.

    The wrapper returns what `fn` returns. The commands `s n u d until r c b p` work as in Python's debugger; `stack`, `locals`,
    `graph` and `guards` print Dynamo's state; `help` lists all commands. The debugger stops at each graph break. `back` and
    `forward` go through the recorded instructions without executing anything again, also after the trace has ended. `q` leaves
    the debugger and lets the function continue.

    An observer: guards and graphs are the same with and without it. `p` and breakpoint conditions add no guards and read copies
    of containers; functions and properties that they call really run.

    Args:
        fn: a function or module; it may be compiled already, otherwise it gets the eager backend. Code that torch has compiled
            for these arguments is not traced again: call `torch._dynamo.reset()` first.
        script: commands to run instead of prompting: a str with one command a line or separated by `;`, or an iterable of
            commands. After the last command the function continues. By default the debugger prompts on standard input.
        internals: whether to stop in and show code of torch and the standard library.

    Raises:
        UsageError: `fn` is not callable, or `script` is neither a str nor an iterable of str.

    Example:
        >>> import torch
        >>> from dynx.comptime import debug
        >>> def f(x):
        ...     y = x + 1
        ...     return y * 2
        >>> debug(f, script="n; p y; back 1; locals")(torch.ones(3))  # doctest: +ELLIPSIS
        <...>:2  f  [0/0]  ...
        -> y = x + 1
        (dynx) n
        <...>:3  f  [0/0]  ...
        -> return y * 2
        (dynx) p y
        Tensor(float32, [3])
        (dynx) back 1
        <...>:2  f  [0/0]  ...  at STORE_FAST y  1 instruction back
        -> y = x + 1
        (dynx) locals
        x  Tensor(float32, [3])
        tensor([4., 4., 4.])
    """
    if not callable(fn):
        raise UsageError(f"debug() got {fn!r}, which is not callable\n  pass a function or a module")
    compiled = fn if trace_rules.is_compiled_callable(fn) else compile_apart(fn, "eager")
    commands = None if script is None else _commands(script)

    @trace_rules.not_traced
    def debugged(*args: Any, **kwargs: Any) -> Any:
        with Session(None if commands is None else list(commands), internals=internals) as session:
            try:
                result = compiled(*args, **kwargs)
            except Exception as error:
                session.end(f"{type(error).__name__} leaves the function")
                raise
            session.end("the trace is over")
            return result

    return update_wrapper(debugged, fn) if hasattr(fn, "__name__") else debugged


def _commands(script: str | Iterable[str]) -> list[str]:
    """Split a debugger script into commands, leaving out empty lines."""
    try:
        lines = script.replace(";", "\n").splitlines() if isinstance(script, str) else list(script)
        return [line.strip() for line in lines if line.strip()]
    except (TypeError, AttributeError):
        raise UsageError(
            f"script is {script!r}, which has no debugger commands\n  pass a str, or an iterable of str with one command each"
        ) from None


def open_here(tx: Any, script: str | Iterable[str] | None) -> None:
    """Prompt for debugger commands in the middle of a trace.

    If no debugger session is open on this thread, open one that ends with this trace attempt.
    """
    session: Session | None = vars(_on_thread).get("session")
    if session is None:
        session = Session(None if script is None else _commands(script))
        session.__enter__()
        translator.attempt_ends(tx, session.remove)
    session.stop_in_callback(tx)


_on_thread = threading.local()  # `session`: the innermost session of the thread


class Session(Handle):
    """One debugged call: records every instruction that Dynamo traces, and prompts for commands where the debugger stops.

    A session is active inside its `with` block, on the thread that entered it.
    """

    def __init__(self, commands: list[str] | None, *, internals: bool = False) -> None:
        self.recorder = Recorder()
        self.trail = self.recorder.trail
        self.debugger = Debugger(self.recorder, commands, internals=internals)
        # reasons of graph breaks, for attempts that reach the instruction again: by compile id, and number of rows up to it
        self._break_reasons: dict[tuple[str, int], str] = {}
        self._thread = threading.get_ident()
        self._handles: list[Handle] = []
        self._outer: Session | None = None

    def __enter__(self) -> Self:
        self._handles = [
            StepHook(self._around_step),
            hooks.subscribe(hook_point("graph_break"), self._on_logged_break, on_error=_report, this_thread_only=True),
        ]
        self._outer = vars(_on_thread).get("session")
        _on_thread.session = self
        return self

    def remove(self) -> None:
        """Stop recording instructions; those recorded so far stay readable."""
        if not self._handles:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.debugger.has_left = True  # another tool may still call our `step`
        self.recorder.close()
        _on_thread.session = self._outer

    def end(self, reason: str) -> None:
        """Print `reason` and prompt once more after the call has ended, so that the user can inspect the recorded trace."""
        if not self.debugger.has_left:
            self.debugger.end(reason)

    def stop_in_callback(self, tx: Any) -> None:
        """Prompt inside a comptime callback, after recording the state of the traced frame if it has not been recorded yet."""
        if not self.debugger.has_left:
            self.recorder.row_of(tx, calls=False)
            self._guarded(self.debugger.stop_at, tx)

    def _around_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        thread, add_row, under_way, errors = self._thread, self.recorder.add_row, self.recorder.under_way, break_errors()
        debugger, this_thread = self.debugger, threading.get_ident

        def step(tx: Any) -> Any:
            if debugger.has_left or this_thread() != thread or tx.instruction_pointer is None:
                return original(tx)
            try:
                row = add_row(tx)
            except Exception as failure:  # noqa: BLE001 - a debugger that fails must not fail the program
                self._fail(failure)
                return original(tx)
            under_way.append(tx)
            try:
                if debugger.stop is not None or debugger.breakpoints or debugger.breaks:
                    self._guarded(self._stop_before, row, tx)
                return original(tx)
            except errors as error:
                self._guarded(self._stop_at_break, error, tx)
                raise
            finally:
                under_way.pop()

        return step

    def _on_logged_break(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        under_way = self.recorder.under_way
        self._guarded(self._stop_at_break, logged_error(args, kwargs), under_way[-1] if under_way else None)

    def _guarded(self, work: Callable[..., None], *args: Any) -> None:
        """Run a function of the debugger; if it raises, report the error and continue the program without the debugger."""
        try:
            work(*args)
        except Exception as failure:  # noqa: BLE001 - see above
            self._fail(failure)

    def _stop_before(self, row: int, tx: Any) -> None:
        """Prompt before an instruction if a breakpoint or the stop condition of the last command matches it."""
        if self._stops_before(row, tx):
            self.debugger.stop_at(tx)

    def _stops_before(self, row: int, tx: Any) -> bool:
        """Return whether to stop before an instruction; False if a restarted trace repeats an instruction traced before."""
        attempt, debugger = self.trail.attempt(row), self.debugger
        if attempt.rows <= attempt.replays:
            key = attempt.compile_id, attempt.rows
            if key in self._break_reasons:
                debugger.breaks[row] = self._break_reasons[key]
            for breakpoint in debugger.breakpoints:
                is_met = breakpoint.condition is not None and debugger.stops.is_at(breakpoint, row)
                if is_met and debugger.condition_holds(breakpoint, tx, quietly=True):
                    breakpoint.rows.add(row)
            return False
        hit = [
            breakpoint
            for breakpoint in debugger.breakpoints
            if debugger.stops.is_at(breakpoint, row) and debugger.condition_holds(breakpoint, tx)
        ]
        for breakpoint in hit:
            breakpoint.hits += 1
            breakpoint.rows.add(row)
        return bool(hit) or (debugger.stop is not None and debugger.stop(row))

    def _stop_at_break(self, error: BaseException, tx: Any) -> None:
        """Prompt at a graph break; `tx` is the InstructionTranslator of the innermost frame."""
        if self.debugger.has_left or tx is None or not is_new(error, self):
            return
        graph_break = read_break("", error)
        reason = graph_break.headline
        if not graph_break.resumable:
            reason += "; torch skips the function: it runs eagerly, its callees may be compiled"
        row = self.recorder.row_of(tx)
        attempt = self.trail.attempt(row)
        self.debugger.breaks[row] = self._break_reasons[attempt.compile_id, attempt.rows] = reason
        self.debugger.stop_at(tx, reason)

    def _fail(self, failure: Exception) -> None:
        self.debugger.has_left = True
        _report("step", failure)


def _report(hook: str, error: BaseException) -> None:
    trouble("debugger", error)
