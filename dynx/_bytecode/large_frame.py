"""Call a function so that Python keeps the frames of its inner calls in one large chunk of memory.

Python keeps the frames of a thread in chunks of 16 KiB, and frees a chunk when the first frame in it returns. If a function is
called repeatedly at the end of a chunk, each call allocates the next chunk, with a system call and page faults. A trace of
Dynamo calls millions of functions, hundreds of frames deep: at some depths it spends a fifth of its time on such allocations. A
frame that does not fit into a chunk gets a larger chunk, and the rest of that chunk holds the frames of its inner calls.

Source: `push_chunk` and `_PyThreadState_PopFrame` in CPython's Python/pystate.c; alike in 3.11 to 3.14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_SLOTS = 1 << 17  # of 8 bytes, for values; they are never written, so they take no physical memory


def call_in_large_frame(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return `function(*args, **kwargs)`, with 1 MiB of contiguous memory for the Python frames of all inner calls.

    CPython allocates a chunk of 2 MiB, since the frame of `call_in_large_frame` needs over 1 MiB; the rest is for inner calls.
    """
    return function(*args, **kwargs)


call_in_large_frame.__code__ = call_in_large_frame.__code__.replace(co_stacksize=_SLOTS)
