"""Change torch's cache while no other thread reads it.

A call of compiled code reads the cache without a lock, and gives up the interpreter's lock while it evaluates guards: what
another thread takes out of the cache meanwhile is freed under its feet, and torch crashes (`torch._dynamo.reset()` does too, in
2.11, 2.13 and 2.15). A thread that was just given the interpreter's lock keeps it for `sys.getswitchinterval()`, which is 5
milliseconds, unless it lets go: time to see that no other thread is in a call of compiled code, and to make the change.

Torch: the function around compiled code, `eval_frame.compile_wrapper`, found by the name of something compiled.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from mmap import mmap
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

from dynx.errors import UsageError

_registered: list[bytes] = []  # functions besides calls of compiled code that read the cache

_PATIENCE = 30.0  # seconds
_PAUSE = 0.0005
_ROOM = 1 << 22  # bytes: five hundred threads of a hundred frames
_CUT = b"\n  ...\n"


def register_reader(function: Any) -> None:
    """Have changes to torch's cache wait while another thread is inside this function, which reads the cache."""
    _registered.append(_frame_line(function))


def when_quiet(change: Callable[[], Any], what: str) -> Any:
    """Make a change to torch's cache at a moment in which no other thread is in a call of compiled code.

    Raises UsageError where this thread is compiling, and when no such moment comes in half a minute.
    """
    from torch._dynamo.convert_frame import compile_lock

    if _is_compiling(sys._getframe()):
        raise UsageError(f"{what}: this thread is compiling, and torch goes on with what would be freed\n  call it afterwards")
    readers, end = _reader_lines(), time.monotonic() + _PATIENCE
    with _Stacks() as stacks:
        while True:
            stacks.clear()
            time.sleep(0)  # begins a turn of our own, and nothing below lets go of it
            begun = time.perf_counter()
            busy = _busy_thread(stacks.read(), readers)
            if busy is None and compile_lock.acquire(blocking=False):
                try:
                    if time.perf_counter() - begun < sys.getswitchinterval() / 2:  # it is still our turn
                        return change()
                finally:
                    compile_lock.release()
            if time.monotonic() > end:
                names = {each.ident: each.name for each in threading.enumerate()}
                raise UsageError(
                    f"{what}: thread {names.get(busy, busy)!r} was in calls of compiled code for {_PATIENCE:.0f} seconds;"
                    " torch would have crashed\n  let them end first"
                )
            time.sleep(_PAUSE)


class _Stacks:
    """What all threads are doing, written down by `faulthandler`; read through memory, since reading a file lets others run.

    Python's own `sys._current_frames()` makes objects of the frames, which torch's frames do not survive safely.
    """

    def __enter__(self) -> _Stacks:
        self._file = TemporaryFile()
        self._file.truncate(_ROOM)
        self._memory = mmap(self._file.fileno(), _ROOM)
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self._file.close()

    def clear(self) -> None:
        written = os.lseek(self._file.fileno(), 0, os.SEEK_CUR)
        self._memory[: min(written, _ROOM)] = bytes(min(written, _ROOM))
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)

    def read(self) -> bytes:
        faulthandler.dump_traceback(self._file.fileno(), all_threads=True)
        return self._memory[: self._memory.find(b"\0")]


def _busy_thread(stacks: bytes, readers: tuple[bytes, ...]) -> int | None:
    """Give the number of another thread that is in a call of compiled code, or asks the cache about one.

    Of a stack only the innermost hundred frames are known; the call may be below.
    """
    for thread in stacks.split(b"\n\n"):
        head, _, stack = (thread + b"\n").partition(b"\n")
        if head.startswith(b"Thread 0x") and (_CUT in stack or any(each in stack for each in readers)):
            return int(head.split()[1], 16)
    return None


def _reader_lines() -> tuple[bytes, ...]:
    return _compiled_call(), *_registered


@cache
def _compiled_call() -> bytes:
    import torch

    def nothing() -> None: ...

    wrapper: Any = torch._dynamo.optimize("eager")(nothing)
    return _frame_line(wrapper)


def _frame_line(function: Any) -> bytes:
    """Return how `faulthandler` ends the line of a frame that runs the function."""
    return f" in {function.__code__.co_name}\n".encode()


def _is_compiling(frame: FrameType) -> bool:
    from torch._dynamo import convert_frame

    compiles = inspect.unwrap(convert_frame._compile).__code__
    return any(each.f_code is compiles for each in _outwards(frame))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
