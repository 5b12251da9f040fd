"""Change torch's cache while no other thread reads it.

A call of compiled code reads the cache without a lock, and gives up the interpreter's lock while it evaluates guards: what
another thread takes out of the cache meanwhile is freed under its feet, and torch crashes (`torch._dynamo.reset()` does too, in
2.11, 2.13 and 2.15). A thread that was just given the interpreter's lock keeps it for `sys.getswitchinterval()`, which is 5
milliseconds, unless it lets go: time to see that no other thread is in a call of compiled code, and to make the change.

Torch: the function around compiled code, `eval_frame.compile_wrapper`, found as the code of something compiled.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

from dynx.errors import UsageError

_PATIENCE = 30.0  # seconds
_PAUSE = 0.0005


def when_quiet(change: Callable[[], Any], what: str) -> Any:
    """Make a change to torch's cache at a moment in which no other thread is in a call of compiled code.

    Raises UsageError where this thread is compiling, and when no such moment comes in half a minute.
    """
    from torch._dynamo.convert_frame import compile_lock

    if _is_compiling(sys._getframe()):
        raise UsageError(f"{what}: this thread is compiling, and torch goes on with what would be freed\n  call it afterwards")
    end = time.monotonic() + _PATIENCE
    while True:
        time.sleep(0)  # begins a turn of our own
        begun = time.perf_counter()
        busy = _busy_thread()
        if busy is None and time.perf_counter() - begun < sys.getswitchinterval() / 4 and compile_lock.acquire(blocking=False):
            try:
                return change()
            finally:
                compile_lock.release()
        if time.monotonic() > end:
            raise UsageError(
                f"{what}: thread {busy!r} was in calls of compiled code for {_PATIENCE:.0f} seconds; torch would have crashed\n"
                "  let them end first"
            )
        time.sleep(_PAUSE)


def _busy_thread() -> str | None:
    """Name another thread that is in a call of compiled code, or asks the cache about one."""
    me, names = threading.get_ident(), {each.ident: each.name for each in threading.enumerate()}
    readers = _readers()
    for ident, frame in sys._current_frames().items():
        if ident != me and any(each.f_code in readers for each in _outwards(frame)):
            return names.get(ident) or str(ident)
    return None


@cache
def _readers() -> tuple[CodeType, ...]:
    import torch

    from dynx._torch.dry_run import look_up

    def nothing() -> None: ...

    wrapper: Any = torch._dynamo.optimize("eager")(nothing)
    return wrapper.__code__, look_up.__code__


def _is_compiling(frame: FrameType) -> bool:
    from torch._dynamo import convert_frame

    compiles = inspect.unwrap(convert_frame._compile).__code__
    return any(each.f_code is compiles for each in _outwards(frame))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
