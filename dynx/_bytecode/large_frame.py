"""Call a function with room for the frames of all functions that it calls in turn.

Python keeps the frames of a thread in chunks of 16 KiB, and frees a chunk when the first frame in it returns. A function that
is called again and again right where a chunk ends allocates the next one each time, with a system call and page faults. A trace
of Dynamo calls millions of functions, hundreds of frames deep: at some depths it spends a fifth of its time on that. A frame
that is larger than a chunk gets a larger chunk, and what is left of it holds the frames behind.

Source: `push_chunk` and `_PyThreadState_PopFrame` in CPython's Python/pystate.c; alike in 3.11 to 3.14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_SLOTS = 1 << 17  # for values, of 8 bytes; none of them is ever written, so they take no memory


def call_in_large_frame(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return `function(*args, **kwargs)`, called from a frame of 1 MiB: its chunk has another MiB for the frames behind."""
    return function(*args, **kwargs)


call_in_large_frame.__code__ = call_in_large_frame.__code__.replace(co_stacksize=_SLOTS)
