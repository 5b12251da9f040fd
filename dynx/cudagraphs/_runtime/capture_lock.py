"""A lock that allows one capture at a time in a process, during which no other graph is destroyed.

CUDA invalidates a capture if a graph is destroyed or the device is synchronized meanwhile, and torch has one random number
generator for all captures of a device. A graph is destroyed with its last reference, which a garbage collection may drop at any
time.

Torch runs the backward passes of all threads in one thread per device. A captured one runs in the thread that captures: in
the other, it could wait for a backward pass that waits for this lock.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any
from weakref import finalize

import torch

capturing_threads: list[int] = []  # identifiers of the threads of captures in progress
capture_lock = RLock()
_graphs: dict[int, tuple[Any, Callable[[], None]]] = {}  # by id; kept alive until they may be destroyed
_expired: list[int] = []  # ids of graphs whose owner was deleted during a capture


def destroy_outside_of_captures(owner: Any, graph: Any, wait: Callable[[], None]) -> None:
    """Keep a graph alive until its owner is deleted and no capture is in progress.

    Args:
        owner: The object that uses the graph.
        graph: A `torch.cuda.CUDAGraph`.
        wait: Waits until replays of the graph have ended, after which its memory may be used by others.
    """
    _graphs[id(graph)] = graph, wait
    finalize(owner, _destroy, id(graph)).atexit = False


def _destroy(graph_id: int) -> None:
    if capturing_threads:
        _expired.append(graph_id)
    else:
        _, wait = _graphs.pop(graph_id)
        wait()


@contextmanager
def exclusive_capture() -> Iterator[None]:
    """Wait for captures of other threads, and defer garbage collection and the destruction of graphs until the end."""
    with capture_lock:
        was_enabled = gc.isenabled()
        gc.disable()
        capturing_threads.append(get_ident())
        try:
            with torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            capturing_threads.pop()
            while _expired and not capturing_threads:
                _destroy(_expired.pop())
            if was_enabled:
                gc.enable()
