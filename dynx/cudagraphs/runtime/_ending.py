"""When captured graphs end: never during a capture, which CUDA would break off.

Whatever drops the last reference to a graph destroys it, and a garbage collection may do so at any time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import finalize

_kept: dict[int, Any] = {}
_ended: list[int] = []  # while something was captured
_captures: list[None] = []  # under way


def keep_while_captured(owner: Any, graph: Any) -> None:
    """Destroy a graph when its owner is gone and nothing is being captured."""
    _kept[id(graph)] = graph
    finalize(owner, _end, id(graph)).atexit = False


def _end(graph: int) -> None:
    if _captures:
        _ended.append(graph)
    else:
        _kept.pop(graph)


@contextmanager
def capturing() -> Iterator[None]:
    """Keep for later what ends meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    _captures.append(None)
    try:
        yield
    finally:
        _captures.pop()
        while _ended and not _captures:
            _kept.pop(_ended.pop())
        if was_enabled:
            gc.enable()
