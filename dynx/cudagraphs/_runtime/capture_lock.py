"""One capture at a time in a process, during which no graph ends, and nothing is captured apart.

CUDA breaks a capture off where a graph is destroyed or a device waited for meanwhile, and torch has one generator of random
numbers for all captures. Whatever drops the last reference to a graph destroys it; a garbage collection may do so at any time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any
from weakref import finalize

underway: list[int] = []  # the threads of captures
alone = RLock()
_kept: dict[int, Any] = {}
_ended: list[int] = []  # while something was captured


def keep_while_captured(owner: Any, graph: Any) -> None:
    """Destroy a graph when its owner is gone and nothing is being captured."""
    _kept[id(graph)] = graph
    finalize(owner, _end, id(graph)).atexit = False


def _end(graph: int) -> None:
    if underway:
        _ended.append(graph)
    else:
        _kept.pop(graph)


@contextmanager
def capturing() -> Iterator[None]:
    """Wait for other captures, and keep for later what ends meanwhile."""
    with alone:
        was_enabled = gc.isenabled()
        gc.disable()
        underway.append(get_ident())
        try:
            yield
        finally:
            underway.pop()
            while _ended and not underway:
                _kept.pop(_ended.pop())
            if was_enabled:
                gc.enable()
