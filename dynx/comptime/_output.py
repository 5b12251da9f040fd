"""What callbacks print and log: shown once, when the attempt that said it is the one that counts.

Dynamo starts a function's trace anew at every graph break, so a callback runs several times for one logical hit. What it says
is kept with the attempt and dropped when torch throws the attempt away.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Literal, TextIO

from dynx._torch.capabilities import hook_point
from dynx._torch.compilation.frame import is_skip, restart_reason
from dynx._torch.hooks import subscribe
from dynx._torch.tracing import translator
from dynx._trace.dispatch import emit, trouble
from dynx._trace.user_location import location_of, owner_of_file
from dynx.errors import DynxWarning
from dynx.records.comptime import Logged

Discarded = Literal["skipped", "failed"]
_DEBUGGERS = ("bdb", "pdb", "IPython.core.debugger", "ipdb", "pudb")


Say = Callable[[Discarded | None], None]  # gets why the attempt was discarded, None when it counts


@dataclass
class _Attempt:
    """The output of one attempt, in order."""

    compile_id: str
    where: str
    handled: BaseException | None  # what Python was handling when the attempt began
    is_helper: bool  # a function of ours is traced by itself
    said: list[Say] = field(default_factory=list)
    visible: bool = False  # something is to be shown


_attempts: dict[int, _Attempt] = {}
# what a callback said that then broke the graph: the attempt that takes the break does not call it again
_carried: dict[tuple[int, str], tuple[_Attempt, list[Say]]] = {}


def write(tx: Any, text: str, file: TextIO | None) -> None:
    """Print `text` and a newline to standard output when the attempt counts.

    At once in a debugger, and into a file that the callback names, which may close or read it.
    """
    if file is not None or _in_debugger():
        print(text, file=file)
    else:
        _later(tx, lambda discarded: print(text))


def log(tx: Any, record: Logged) -> None:
    """Show one logged event on standard error and give it to every watch."""

    def say(discarded: Discarded | None) -> None:
        event = replace(record, outcome=discarded or "committed")
        print(event, file=sys.stderr)
        emit(event)

    if _in_debugger():
        print(record, file=sys.stderr)
        return
    _later(tx, say)


def when_it_counts(tx: Any, call: Callable[[], None]) -> None:
    """Call `call` when the attempt under way has led to compiled code."""
    _later(tx, lambda discarded: call() if discarded is None else None, visible=False)


def said_so_far(tx: Any) -> int:
    """Give a mark for `carry`."""
    attempt = _attempts.get(id(translator.output_key(tx)))
    return 0 if attempt is None else len(attempt.said)


def carry(tx: Any, mark: int) -> None:
    """Keep what was said since `mark` for the attempt to come, in which the graph ends here and the callback is not called."""
    attempt = _attempts.get(id(translator.output_key(tx)))
    if attempt is None or not translator.can_break_here(tx):
        return
    _carried[threading.get_ident(), attempt.compile_id] = attempt, attempt.said[mark:]
    # that attempt may have nothing to say itself, so nobody would notice its end
    when_nothing_compiles(_say_what_was_carried)


def _say_what_was_carried() -> None:
    for key in [key for key in _carried if key[0] == threading.get_ident()]:
        _say_all(_carried.pop(key)[1], None)


def when_nothing_compiles(call: Callable[[], None]) -> None:
    """Call `call` when the compilation under way on this thread is over; at once where there is none."""
    if not translator.trace_id().compile_id:
        call()
        return
    # torch tells the end of the outermost compilation
    subscription = subscribe(
        hook_point("backward_end"),
        lambda args, kwargs: at_end,
        on_error=lambda hook, error: trouble("comptime output", error),
        this_thread_only=True,
    )

    def at_end(result: object, raised: BaseException | None) -> None:
        subscription.remove()
        call()


def _later(tx: Any, say: Say, *, visible: bool = True) -> None:
    key = id(translator.output_key(tx))
    attempt = _attempts.get(key)
    if attempt is None:
        attempt = _attempts[key] = _begin(tx)
        translator.attempt_ends(tx, lambda: _end(_attempts.pop(key, None)))
    attempt.said.append(say)
    attempt.visible |= visible


def _begin(tx: Any) -> _Attempt:
    root = list(translator.chain(tx))[-1]
    place = translator.place(root)
    is_helper = owner_of_file(place.file)[0] == "dynx"
    return _Attempt(translator.trace_id().compile_id, str(location_of(place)), sys.exc_info()[1], is_helper)


def _end(attempt: _Attempt | None) -> None:
    if attempt is None:
        return
    raised = sys.exc_info()[1]
    if raised is attempt.handled:
        raised = None
    if raised is not None and restart_reason(raised)[0]:
        return
    outcome: Discarded | None = None
    if raised is not None and translator.has_nothing_to_compile(raised):
        if attempt.is_helper:
            return  # a part of the program without operations runs eagerly, and calls our helper, which is traced once more
    elif raised is not None:
        outcome = "skipped" if is_skip(raised) else "failed"
        if attempt.visible:
            print(f"dynx: {attempt.where} was not compiled ({_reason(raised)}); until then:", file=sys.stderr)
    origin, carried = _carried.pop((threading.get_ident(), attempt.compile_id), (attempt, []))
    _say_all(attempt.said if origin is attempt else attempt.said + carried, outcome)


def _say_all(said: list[Say], outcome: Discarded | None) -> None:
    for say in said:
        try:
            say(outcome)
        except (OSError, ValueError) as error:  # standard output is closed
            warnings.warn(f"what a comptime callback said is lost: {error}", DynxWarning, stacklevel=2)


def _reason(raised: BaseException) -> str:
    return (str(raised).strip().splitlines() or [type(raised).__name__])[0]


def _in_debugger() -> bool:
    """Tell whether a person at a debugger's prompt asks: they want the answer now."""
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
