"""A lock that allows one capture at a time in a process, during which no other graph is destroyed.

CUDA invalidates a capture if a graph is destroyed or the device is synchronized meanwhile. Torch adds a graph to a set in the
random number generator of the device when its capture begins, and removes it when the `torch.cuda.CUDAGraph` is deleted, both
without a lock (torch 2.11). A graph is deleted with its last reference, which may be dropped at any time and in any thread:
by a garbage collection, or with the traceback of a capture that failed.

Torch runs the backward passes of all threads in one autograd thread per device. A captured backward pass runs in the thread
that captures instead: the autograd thread may be busy with a backward pass that waits for this lock.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from sys import getrefcount
from threading import RLock, get_ident
from typing import Any
from weakref import finalize

import torch

capturing_threads: list[int] = []  # identifiers of threads with a capture in progress
trying_threads: list[int] = []  # identifiers of threads that run a function uncaptured for verification: they replay no graphs
_lock = RLock()
_graphs: dict[int, tuple[Any, Callable[[], bool]]] = {}  # graph and its `wait`, by id; kept alive until destroyed
_expired: deque[int] = deque()  # ids of graphs whose owner was deleted
_unused: deque[Any] = deque()  # reset graphs and those of failed captures, until nothing else refers to them


def _references_of_a_local_variable() -> int:
    graph = object()
    return getrefcount(graph)


_OWN_REFERENCES = _references_of_a_local_variable()


@contextmanager
def capture_lock() -> Iterator[None]:
    """Wait for captures of other threads, and let none begin in the context. On exit, destroy graphs of deleted owners."""
    with _lock:
        yield
    _destroy_expired()


@contextmanager
def exclusive_capture() -> Iterator[None]:
    """Wait for captures of other threads, and enter a context in which this thread can capture.

    In it, no garbage is collected, no graph is destroyed, and backward passes run in this thread.
    """
    with capture_lock():
        was_enabled = gc.isenabled()
        gc.disable()
        _delete_unused()
        capturing_threads.append(get_ident())
        try:
            with torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            capturing_threads.pop()
            if was_enabled:
                gc.enable()


def destroy_outside_of_captures(owner: Any, graph: Any, wait: Callable[[], bool]) -> None:
    """Keep a `torch.cuda.CUDAGraph` alive until its owner is deleted and no capture is in progress, then destroy it.

    `wait` waits until replays of the graph have ended, so that its memory can be reused; it returns False if it must not wait.
    """
    _graphs[id(graph)] = graph, wait
    finalize(owner, _expire, id(graph)).atexit = False


def delete_outside_of_captures(graph: Any) -> None:
    """Keep a graph whose capture failed alive until nothing else refers to it and no capture is in progress, then delete it."""
    _unused.append(graph)


def _expire(graph_id: int) -> None:
    _expired.append(graph_id)
    _destroy_expired()


def _destroy_expired() -> None:
    """Destroy graphs whose owners were deleted; if another thread holds the lock, that thread does it on release."""
    while _expired and _lock.acquire(blocking=False):
        try:
            if capturing_threads or not _destroy_next():
                return
        finally:
            _lock.release()


def _destroy_next() -> bool:
    """Destroy one graph whose owner was deleted; return False if that has to wait until a capture of this thread has ended."""
    with suppress(IndexError):  # a garbage collection in between may have destroyed it
        graph, wait = _graphs[graph_id := _expired.popleft()]
        if not wait():
            _expired.append(graph_id)
            return False
        graph.reset()
        _unused.append(graph)
        del graph, _graphs[graph_id]
        _delete_unused()
    return True


def _delete_unused() -> None:
    for _ in range(len(_unused)):
        with suppress(IndexError):
            graph = _unused.popleft()
            if getrefcount(graph) > _OWN_REFERENCES:
                _unused.append(graph)
            del graph
