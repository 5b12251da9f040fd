"""`debug(fn)`: a debugger for the symbolic side of torch.compile, which can also go back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import update_wrapper
from types import TracebackType
from typing import Any, Self

from dynx._bytecode.trail import NOTHING
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.trace_log.log import Recorder
from dynx._torch.trace_log.steps import break_errors, is_new, logged_error
from dynx._torch.tracing import trace_rules, translator
from dynx._torch.tracing.graph_breaks import read_break
from dynx._trace.dispatch import trouble
from dynx.comptime._debug_commands import Debugger
from dynx.comptime._stops import Breakpoint, Stop, Stops


def debug(fn: Callable[..., Any], *, script: str | Iterable[str] | None = None, internals: bool = False) -> Callable[..., Any]:
    """Give a function that compiles `fn` under a debugger and returns what `fn` returns.

    The debugger steps through what torch.compile traces: `s n u d until r c b p stack locals graph guards`, as in Python's own
    where there is such a command (`help` lists them all). It stops at each graph break. `back` and `forward` move over what was
    known before each instruction, without running anything again; also when the trace is over. `q` leaves the debugger and
    lets the function go on.

    `fn` may be compiled already; what is not gets the eager backend. Code that torch has compiled for these arguments is not
    traced again: call `torch._dynamo.reset()` first. `script` are commands to run instead of asking, one a line; when they are
    used up the function goes on; `;` parts them too. `internals` also shows the code of torch and the standard library.
    Changes nothing: the same guards and graphs. `p` and conditions read without a guard, and from copies; functions that they
    call really run.

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
    compiled = fn if trace_rules.is_compiled_callable(fn) else _compile(fn)
    commands = None if script is None else _commands(script)

    def debugged(*args: Any, **kwargs: Any) -> Any:
        with Session(None if commands is None else list(commands), internals) as session:
            try:
                result = compiled(*args, **kwargs)
            except Exception as error:
                session.over(f"{type(error).__name__} leaves the function")
                raise
            session.over("the trace is over")
            return result

    return update_wrapper(debugged, fn) if hasattr(fn, "__name__") else debugged


def _compile(fn: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    compiled: Callable[..., Any] = torch.compile(fn, backend="eager")
    return compiled


def _commands(script: str | Iterable[str]) -> list[str]:
    lines = script.replace(";", "\n").splitlines() if isinstance(script, str) else list(script)
    return [line.strip() for line in lines if line.strip()]


def open_here(tx: Any, script: str | Iterable[str] | None) -> None:
    """Open the debugger in the middle of a trace; it closes when the attempt ends."""
    session = vars(_on_thread).get("session")
    if session is None:
        session = Session(None if script is None else _commands(script), internals=False)
        session.__enter__()
        translator.attempt_ends(tx, lambda: session.__exit__(None, None, None))
    session.ask_at(tx)


_on_thread = threading.local()


class Session:
    """One call under the debugger: records every instruction and asks what to do where it stops."""

    def __init__(self, commands: list[str] | None, internals: bool) -> None:
        self.recorder = Recorder()
        self.trail = self.recorder.trail
        self.internals = internals
        self.stops = Stops(self.trail, internals)
        self.breakpoints: list[Breakpoint] = []
        self.breaks: dict[int, str] = {}  # rows at which a graph broke, and why
        self._broke: dict[tuple[str, int], str] = {}  # the same by compile id and number of rows in the attempt
        self.stop: Stop | None = self.stops.step(NOTHING)
        self.has_left = False
        self._thread = threading.get_ident()
        self._debugger = Debugger(self, commands)
        self._handles: list[Any] = []
        self._outer: Session | None = None
        self._innermost: Any = None  # frame, whose instruction began last

    def __enter__(self) -> Self:
        self._handles = [
            hooks.wrap(hook_point("step"), self._around_step),
            hooks.subscribe(hook_point("graph_break"), self._logged, on_error=_report, this_thread_only=True),
        ]
        self._outer = vars(_on_thread).get("session")
        _on_thread.session = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()
        self.recorder.close()
        self._innermost = None
        _on_thread.session = self._outer

    def leave(self) -> None:
        """Let the function go on without the debugger."""
        self.has_left = True

    def over(self, why: str) -> None:
        """The call has ended: what was traced can still be looked at."""
        if not self.has_left:
            self._debugger.over(why)

    def ask_at(self, tx: Any) -> None:
        """Ask in the middle of an instruction, also where nothing was recorded so far."""
        if not self.has_left:
            self.recorder.row_of(tx, calls=False)
            self._guarded(self._debugger.stopped, tx)

    def _around_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        thread, before, after, errors = self._thread, self.recorder.before, self.recorder.after, break_errors()
        this_thread = threading.get_ident

        def step(tx: Any) -> Any:
            if self.has_left or this_thread() != thread or tx.instruction_pointer is None:
                return original(tx)
            try:
                row = before(tx)
            except Exception as failure:  # noqa: BLE001 - a debugger that fails must not fail the program
                self._fail(failure)
                return original(tx)
            outer, self._innermost = self._innermost, tx
            try:
                if self.stop is not None or self.breakpoints or self.breaks:
                    self._guarded(self._stop_if_wanted, row, tx)
                return original(tx)
            except errors as error:
                self._guarded(self._at_break, error, tx)
                raise
            finally:
                self._innermost = outer
                after()

        return step

    def _logged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._guarded(self._at_break, logged_error(args, kwargs), self._innermost)

    def _guarded(self, work: Callable[..., Any], *args: Any) -> None:
        """Do work of the debugger; should it fail, the program goes on without."""
        try:
            work(*args)
        except Exception as failure:  # noqa: BLE001 - see above
            self._fail(failure)

    def _stop_if_wanted(self, row: int, tx: Any) -> None:
        if self._wants(row, tx):
            self._debugger.stopped(tx)

    def _wants(self, row: int, tx: Any) -> bool:
        """Tell whether to stop here; what an attempt only repeats was gone through before."""
        attempt = self.trail.attempt(row)
        if attempt.rows <= attempt.replays:
            if (attempt.compile_id, attempt.rows) in self._broke:
                self.breaks[row] = self._broke[attempt.compile_id, attempt.rows]
            for each in self.breakpoints:
                if each.condition is not None and self.stops.is_at(each, row) and self._debugger.holds(each, tx, quietly=True):
                    each.held.add(row)
            return False
        met = [each for each in self.breakpoints if self.stops.is_at(each, row) and self._debugger.holds(each, tx)]
        for each in met:
            each.hits += 1
            each.held.add(row)
        return bool(met) or (self.stop is not None and self.stop(row))

    def _at_break(self, error: BaseException, tx: Any) -> None:
        """Stop in the innermost frame: the first that an error leaves, or the last that was traced."""
        if self.has_left or tx is None or not is_new(error, self):
            return
        found = read_break("", error)
        rest = "" if found.resumable else "; torch gives the function up: it runs as Python, what it calls may be compiled"
        row = self.recorder.row_of(tx)
        attempt = self.trail.attempt(row)
        self.breaks[row] = self._broke[attempt.compile_id, attempt.rows] = f"{found.headline}{rest}"
        self._debugger.stopped(tx, self.breaks[row])

    def _fail(self, failure: Exception) -> None:
        self.leave()
        _report("step", failure)


def _report(hook: str, error: BaseException) -> None:
    trouble("debugger", error)
