"""Change Dynamo's cache of compiled code while no other thread reads it.

A call of compiled code reads the cache without a lock, and may release the GIL while it evaluates guards. An entry that another
thread removes meanwhile is freed while it is in use, and torch crashes (so does `torch._dynamo.reset()`, in 2.11, 2.13 and
2.15). A thread that just acquired the GIL keeps it for `sys.getswitchinterval()`, which is 5 milliseconds, unless it releases
it: enough time to check that no other thread is in a call of compiled code, and to make the change.

Torch: the function around compiled code, `eval_frame.compile_wrapper`, whose name is read from a compiled function.
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

_registered: list[bytes] = []  # functions that read the cache, besides calls of compiled code

_TIMEOUT = 30.0  # seconds
_PAUSE = 0.0005  # seconds between attempts
_BUFFER = 1 << 22  # bytes: the stacks of five hundred threads with a hundred frames each
_TRUNCATED = b"\n  ...\n"


def register_reader(function: Any) -> None:
    """Register a function that reads the cache: changes to the cache wait while another thread executes it."""
    _registered.append(_frame_line(function))


def when_quiet(change: Callable[[], Any], operation: str) -> Any:
    """Call `change` at a moment when no other thread is in a call of compiled code, and return its result.

    Raises UsageError if this thread is compiling, or if other threads leave no such moment for half a minute.
    """
    from torch._dynamo.convert_frame import compile_lock

    if _is_compiling(sys._getframe()):
        raise UsageError(
            f"{operation}: this thread is compiling, and torch would continue with cache entries that are freed\n"
            f"  call {operation} after the compilation"
        )
    readers, end = _reader_lines(), time.monotonic() + _TIMEOUT
    with _Stacks() as stacks:
        while True:
            stacks.clear()
            time.sleep(0)  # releases the GIL and acquires it again; nothing below releases it
            acquired = time.perf_counter()
            busy = _busy_thread(stacks.read(), readers)
            if busy is None and compile_lock.acquire(blocking=False):
                try:
                    if time.perf_counter() - acquired < sys.getswitchinterval() / 2:  # the GIL was held all the time
                        return change()
                finally:
                    compile_lock.release()
            if time.monotonic() > end:
                names = {thread.ident: thread.name for thread in threading.enumerate()}
                raise UsageError(
                    f"{operation}: thread {names.get(busy, busy)!r} has been calling compiled code for {_TIMEOUT:.0f} seconds;"
                    " removing cache entries meanwhile could crash torch\n"
                    f"  wait until that thread has finished, then call {operation} again"
                )
            time.sleep(_PAUSE)


class _Stacks:
    """The stacks of all threads as text: `faulthandler` writes them, `mmap` reads them, as reading a file releases the GIL.

    `sys._current_frames()` would create frame objects, which is not safe for the frames that torch runs.
    """

    def __enter__(self) -> _Stacks:
        self._file = TemporaryFile()
        self._file.truncate(_BUFFER)
        self._memory = mmap(self._file.fileno(), _BUFFER)
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self._file.close()

    def clear(self) -> None:
        """Erase the stacks that `read` wrote last."""
        written = os.lseek(self._file.fileno(), 0, os.SEEK_CUR)
        self._memory[: min(written, _BUFFER)] = bytes(min(written, _BUFFER))
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)

    def read(self) -> bytes:
        """Write the current stacks of all threads, and return their text."""
        faulthandler.dump_traceback(self._file.fileno(), all_threads=True)
        return self._memory[: self._memory.find(b"\0")]


def _busy_thread(stacks: bytes, readers: tuple[bytes, ...]) -> int | None:
    """Return the id of another thread that is calling compiled code or reading the cache; None if there is none.

    `faulthandler` writes only the innermost hundred frames; a longer stack counts as busy, since the call may be further out.
    """
    for thread in stacks.split(b"\n\n"):
        head, _, stack = (thread + b"\n").partition(b"\n")
        if head.startswith(b"Thread 0x") and (_TRUNCATED in stack or any(reader in stack for reader in readers)):
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
    """Return the end of the line that `faulthandler` writes for a frame of this function."""
    return f" in {function.__code__.co_name}\n".encode()


def _is_compiling(frame: FrameType) -> bool:
    from torch._dynamo import convert_frame

    compiles = inspect.unwrap(convert_frame._compile).__code__
    return any(outer.f_code is compiles for outer in _outwards(frame))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
