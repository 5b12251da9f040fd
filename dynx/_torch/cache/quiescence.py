"""Change Dynamo's cache of compiled code while no other thread reads it.

A call of compiled code reads the cache without a lock, and may release the GIL while it evaluates guards. If another thread
removes an entry meanwhile, the entry is freed while it is in use, and torch crashes (`torch._dynamo.reset()` can cause this,
in 2.11, 2.13 and 2.15). Therefore new calls have to wait (`gate`), and a change is made once no other thread is in a call.

Torch: the function around compiled code, `eval_frame.compile_wrapper`, whose code is read from a compiled function.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from dynx._torch.cache import gate
from dynx._torch.cache.stacks import Stacks
from dynx.errors import UsageError

_registered: list[Any] = []  # functions that read the cache, besides calls of compiled code

_TIMEOUT = 30.0  # seconds
_PAUSE = 0.0005  # seconds between two checks of the other threads
_FIRST_HOLD = 0.1  # seconds for which new calls are held, then admitted for as long; each further hold is twice as long
_MOST_NAMES = 5  # of threads in an error message
_TRUNCATED = b"\n  ...\n"
_MORE_THREADS = b"\n...\n"  # written by `faulthandler` after the stacks of a hundred threads, instead of further stacks


def register_reader(function: Any) -> None:
    """Register a function that reads the cache: changes wait while another thread executes it. It must call `hold` first."""
    _registered.append(function)


def hold() -> None:
    """Wait while another thread changes the cache. A function passed to `register_reader` must call this first."""
    gate.wait(_reader_codes())


def when_quiet(change: Callable[[], None], operation: str) -> None:
    """Call `change` at a moment when no other thread is in a call of compiled code.

    Until then, new calls of other threads are alternately made to wait and let through, since a thread in a call may wait for
    a thread whose call waits. Raises UsageError if this thread is compiling, or if there is no such moment for half a minute;
    `operation` names the caller's operation in the message.
    """
    if _is_compiling(sys._getframe()):
        raise UsageError(
            f"{operation} failed: this thread is compiling, and torch would use the cache entries after they are freed\n"
            f"  call {operation} after the compilation"
        )
    end, seconds = time.monotonic() + _TIMEOUT, min(_FIRST_HOLD, _TIMEOUT / 2)
    longest: _Hold | None = None
    with Stacks() as stacks:
        while time.monotonic() < end:
            with gate.closed(_reader_codes):
                held = _change_within(min(seconds, end - time.monotonic()), change, stacks)
            if held.has_changed:
                return
            longest = held if longest is None or held.seconds > longest.seconds else longest
            time.sleep(max(0.0, min(seconds, end - time.monotonic())))
            seconds *= 2
    assert longest is not None  # the timeout is positive
    raise UsageError(
        f"{operation} failed, since it could crash torch while compiled code runs: {_why_not(longest)}\n"
        f"  wait until no other thread is in compiled code, then call {operation} again"
    )


class _Look(NamedTuple):
    """The other threads that read the cache at one moment, according to their stacks."""

    busy: frozenset[int]  # the ids of threads that are calling compiled code or reading the cache
    deep: frozenset[int]  # busy threads whose stack is so long that a call may be in its outer frames, which are not seen
    is_complete: bool  # whether all threads were seen


class _Hold(NamedTuple):
    """The outcome of one period in which new calls of compiled code had to wait."""

    has_changed: bool  # whether the change was made
    looks: int  # how often the other threads were checked
    stayed: frozenset[int]  # threads that were busy at every check
    seconds: float
    last: _Look


def _change_within(seconds: float, change: Callable[[], None], stacks: Stacks) -> _Hold:
    """Call `change` once no other thread reads the cache; give up after `seconds`, but check the threads at least once."""
    from torch._dynamo.convert_frame import compile_lock

    readers, begin, looks = _reader_lines(), time.monotonic(), 0
    stayed: frozenset[int] | None = None
    while True:
        look = _look(stacks.read(), readers)
        looks, stayed = looks + 1, look.busy if stayed is None else stayed & look.busy
        has_changed = not look.busy and look.is_complete and compile_lock.acquire(blocking=False)
        if has_changed:
            try:
                change()
            finally:
                compile_lock.release()
        if has_changed or time.monotonic() - begin >= seconds:
            return _Hold(has_changed, looks, stayed, time.monotonic() - begin, look)
        time.sleep(_PAUSE)


def _why_not(hold: _Hold) -> str:
    if not hold.last.is_complete:
        return "more than 100 threads are running, and Python shows the stacks of only 100"
    if not hold.stayed:
        return f"in {_TIMEOUT:.0f} seconds there was no moment at which no other thread was in a call of compiled code"
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    shown = [repr(names.get(thread, thread)) for thread in sorted(hold.stayed)]
    some = ", ".join(shown[:_MOST_NAMES]) + (f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else "")
    threads = f"thread {some} was" if len(shown) == 1 else f"threads {some} were"
    deep = hold.stayed & hold.last.deep
    where = "in compiled code, or more than 100 frames deep, so that dynx cannot know," if deep else "in compiled code"
    return f"{threads} {where} at each of {hold.looks} looks in {hold.seconds:.1f} seconds, while new calls had to wait"


def _look(stacks: bytes, readers: tuple[bytes, ...]) -> _Look:
    """Find the other threads that read the cache: their stacks contain a line of `readers`, and they do not wait in `gate`.

    `faulthandler` writes only the innermost hundred frames. A thread with a longer stack counts as busy, because it may read
    the cache in its outer frames.
    """
    busy, deep = set(), set()
    for thread in stacks.split(b"\n\n"):
        head, _, stack = (thread + b"\n").partition(b"\n")
        if not head.startswith(b"Thread 0x") or _HELD in stack:
            continue
        if any(reader in stack for reader in readers):
            busy.add(int(head.split()[1], 16))
        elif _TRUNCATED in stack:
            deep.add(int(head.split()[1], 16))
    return _Look(frozenset(busy | deep), frozenset(deep), not stacks.endswith(_MORE_THREADS))


def _reader_lines() -> tuple[bytes, ...]:
    return tuple(map(_frame_line, (_compiled_call(), *_registered)))


def _reader_codes() -> frozenset[CodeType]:
    return frozenset(function.__code__ for function in (_compiled_call(), *_registered))


@cache
def _compiled_call() -> Any:
    import torch

    def nothing() -> None: ...

    return torch._dynamo.optimize("eager")(nothing)


def _frame_line(function: Any) -> bytes:
    """Return the text at the end of each line that `faulthandler` writes for a frame of this function: ` in <name>`."""
    return f" in {function.__code__.co_name}\n".encode()


_HELD = _frame_line(gate.dynx_holds_this_call)


def _is_compiling(frame: FrameType) -> bool:
    from torch._dynamo import convert_frame

    compiles = inspect.unwrap(convert_frame._compile).__code__
    return any(outer.f_code is compiles for outer, _ in traceback.walk_stack(frame))
