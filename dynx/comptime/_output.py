"""Buffer what comptime callbacks print, so that it appears once however often Dynamo restarts the trace.

Dynamo restarts the trace of a frame at every graph break, so a callback runs several times for one execution of its line. Its
output is kept with the trace attempt, shown when that attempt ends, and dropped if Dynamo discards the attempt to restart. The
docstring of `dynx.comptime` explains attempts.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Literal, TextIO

from dynx._reading.user_location import location_of, owner_of_file
from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.frame import is_skip, restart_reason
from dynx._torch.hooks import subscribe
from dynx._torch.tracing import translator
from dynx._trace.dispatch import emit, trouble
from dynx.errors import DynxWarning
from dynx.records.comptime import Logged

Outcome = Literal["committed", "skipped", "failed"]
Output = Callable[[Outcome], None]  # shows one piece of output; called when the outcome of its attempt is known
_DEBUGGERS = ("bdb", "pdb", "IPython.core.debugger", "ipdb", "pudb")


@dataclass
class _Attempt:
    """The buffered output of one attempt to trace a frame, in order."""

    compile_id: str
    location: str
    handled: BaseException | None  # the exception that Python was handling when the attempt began
    is_helper: bool  # a function of dynx, such as `comptime.print`, is compiled as a frame of its own
    root: Any  # the translator of the frame
    outputs: list[Output] = field(default_factory=list)
    prints: bool = False  # whether some of the outputs print something


_attempts: dict[int, _Attempt] = {}  # by id of torch's OutputGraph, of which every attempt has its own
# output of callbacks that broke the graph, since the attempt that ends its graph there does not call them again:
# by thread and compile id, the attempt in which the callback ran, and the output
_carried: dict[tuple[int, str], tuple[_Attempt, list[Output]]] = {}


def write(tx: Any, text: str, file: TextIO | None) -> None:
    """Print `text` to standard output when the current trace attempt ends, but not if Dynamo restarts the trace.

    Prints immediately at a debugger's prompt, and if the callback passed a `file`, which it may close or read afterwards.
    """
    if file is not None or _in_debugger():
        print(text, file=file)
    else:
        _defer(tx, lambda outcome: print(text))


def log(tx: Any, record: Logged) -> None:
    """When the trace attempt ends, print a `ctx.log` record to standard error, and add it to every open `dynx.watch()`."""

    def output(outcome: Outcome) -> None:
        event = replace(record, outcome=outcome)
        print(event, file=sys.stderr)
        emit(event)

    if _in_debugger():
        print(record, file=sys.stderr)
        return
    _defer(tx, output)


def on_commit(tx: Any, call: Callable[[], None]) -> None:
    """Call `call` when the current trace attempt ends successfully, not if it is restarted, skipped or fails."""
    _defer(tx, lambda outcome: call() if outcome == "committed" else None, prints=False)


def output_count(tx: Any) -> int:
    """Return how many outputs the current attempt has buffered. `carry_over(tx, count)` keeps outputs buffered after these."""
    attempt = _attempts.get(id(translator.output_key(tx)))
    return 0 if attempt is None else len(attempt.outputs)


def carry_over(tx: Any, first: int) -> None:
    """Keep what comptime callbacks have printed and logged, from output number `first` on, for the next tracing attempt.

    For a callback that breaks the graph: the next attempt ends its graph before the callback, which is not called again.
    """
    attempt = _attempts.get(id(translator.output_key(tx)))
    if attempt is None or not translator.can_break_here(tx):
        return
    _carried[threading.get_ident(), attempt.compile_id] = attempt, attempt.outputs[first:]
    # for a next attempt without output of its own, which shows nothing at its end
    after_compilation(_show_carried)


def _show_carried() -> None:
    for key in [key for key in _carried if key[0] == threading.get_ident()]:
        _, outputs = _carried.pop(key)
        _show(outputs, "committed")


def after_compilation(call: Callable[[], None]) -> None:
    """Call `call` at the end of the current compilation of this thread, or at once if nothing is being compiled."""
    if not translator.trace_id().compile_id:
        call()
        return
    # this hook point runs at the end of the outermost compilation
    subscription = subscribe(
        hook_point("backward_end"),
        lambda args, kwargs: at_end,
        on_error=lambda hook, error: trouble("comptime output", error),
        this_thread_only=True,
    )

    def at_end(result: object, raised: BaseException | None) -> None:
        subscription.remove()
        call()


def _defer(tx: Any, output: Output, *, prints: bool = True) -> None:
    """Buffer an output until the current trace attempt ends; `prints` says whether it prints anything."""
    key = id(translator.output_key(tx))
    attempt = _attempts.get(key)
    if attempt is None:
        attempt = _attempts[key] = _begin(tx)
        translator.attempt_ends(tx, lambda: _end(_attempts.pop(key, None)))
    attempt.outputs.append(output)
    attempt.prints |= prints


def _begin(tx: Any) -> _Attempt:
    root = list(translator.chain(tx))[-1]
    place = translator.location(root)
    owner, _ = owner_of_file(place.file)
    return _Attempt(translator.trace_id().compile_id, str(location_of(place)), sys.exc_info()[1], owner == "dynx", root)


def _end(attempt: _Attempt | None) -> None:
    """Show the outputs of a trace attempt that has ended, or drop them if Dynamo restarts the trace.

    Called while torch handles the exception, if any, that ended the attempt: a RestartAnalysis means that Dynamo restarts.
    """
    if attempt is None:
        return
    outcome: Outcome = "committed"
    raised = sys.exc_info()[1]
    if raised is not None and raised is not attempt.handled:
        restarts, reason = restart_reason(raised)
        if restarts:
            return
        if not translator.has_nothing_to_compile(raised):
            outcome = "skipped" if is_skip(raised) and not translator.raises_at_breaks(attempt.root) else "failed"
            if attempt.prints:
                print(f"dynx: {attempt.location} was not compiled ({reason}); its output until then:", file=sys.stderr)
        elif attempt.is_helper:
            return  # a frame without operations runs eagerly and calls our helper, which is then compiled as its own frame
    carrier, carried = _carried.pop((threading.get_ident(), attempt.compile_id), (attempt, []))
    _show(attempt.outputs if carrier is attempt else attempt.outputs + carried, outcome)


def _show(outputs: list[Output], outcome: Outcome) -> None:
    for output in outputs:
        try:
            output(outcome)
        except (OSError, ValueError) as error:  # standard output is closed
            warnings.warn(f"cannot print the output of a comptime callback, which is lost: {error}", DynxWarning, stacklevel=2)


def _in_debugger() -> bool:
    """Return whether this output was requested at the prompt of a debugger such as pdb, where it must appear immediately."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") in _DEBUGGERS:
            return True
        if (
            frame.f_code.co_name == "call_function"
            and frame.f_globals.get("__name__") == "dynx._torch.tracing.comptime_variable"
        ):
            return False
        frame = frame.f_back
    return False
