"""Replay CUDA graphs and compare addresses with as little Python overhead as possible, and manage their memory pools.

Torch: `torch._C._CUDAGraph.replay`, which `CUDAGraph.replay` wraps in Python and from 2.15 on with hooks;
`torch._C._cuda_getCurrentRawStream` and `torch._C._tensors_data_ptrs_at_indices_equal`, which builds without CUDA lack.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet, finalize


def is_plain(graph: Any) -> bool:
    """Return whether a CUDA graph's Python method `replay` does nothing but call the C++ method, so that it runs no hooks."""
    return set(type(graph).replay.__code__.co_names) <= {"super", "replay"}


def replay_of(graph: Any) -> Callable[[], None]:
    """Return a function that replays a CUDA graph, directly in C++ if the Python method only calls the C++ method."""
    from torch import _C

    return partial(_C._CUDAGraph.replay, graph) if is_plain(graph) else graph.replay


def current_stream_of(device: int) -> Callable[[], int]:
    """Return a function that returns the raw CUDA handle of the current stream of a device."""
    from torch import _C

    return partial(_C._cuda_getCurrentRawStream, device)


def current_device() -> Callable[[], int]:
    """Return a function that returns the index of the current device of this thread, in a fraction of a microsecond."""
    from torch import _C

    return _C._cuda_getDevice


def is_same_generator(generator: Any, other: Any) -> bool:
    """Return whether two `torch.Generator` objects are one generator: operators get a new object for the same one."""
    return bool(generator._cdata == other._cdata)


def recover(device: int, pool: Any, stream: Any, generators: Sequence[Any]) -> None:
    """Clean up after a failed CUDA graph capture: unmark generators as captured, and release the memory pool.

    An empty capture unmarks the device's generator and `generators`. A new state for a generator would do so too, but graphs
    that were captured before have the old one: they would draw the same random numbers in each replay, whatever
    `torch.manual_seed` sets. It runs on `stream`, which nobody else may use meanwhile.

    Torch: `CUDAGraph.capture_end` raises before it does so itself, as seen in 2.11 (pytorch#190348).
    """
    import torch
    from torch import _C

    with contextlib.suppress(RuntimeError):  # torch has already ended the allocation
        _C._cuda_endAllocateToPool(device, pool)
        _C._cuda_releasePool(device, pool)  # the start of the capture added a reference
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.device(device), torch.cuda.stream(stream), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph is empty
        graph.capture_begin(capture_error_mode="thread_local")
        graph.capture_end()


class Pool:
    """A memory pool for CUDA graphs that lives as long as this object.

    Args:
        device: Index of the device.
        what: Whose memory it is, for users.

    The pool of a plain `graph_pool_handle` cannot be used any more once its first graph is freed. Torch:
    `torch.cuda.use_mem_pool` begins, ends and releases a pool in this order; `torch.cuda.MemPool` also lives as long as its
    object, but empties caches when it is freed, and aborts if that happens during a capture (2.11).
    """

    def __init__(self, device: int, what: str) -> None:
        import torch
        from torch import _C

        self.what, self.device = what, device
        _pools.add(self)
        self.handle = torch.cuda.graph_pool_handle()
        _C._cuda_beginAllocateCurrentThreadToPool(device, self.handle)
        _C._cuda_endAllocateToPool(device, self.handle)
        finalize(self, _C._cuda_releasePool, device, self.handle).atexit = False

    @contextlib.contextmanager
    def allocations(self) -> Iterator[None]:
        """Let this thread allocate from the pool."""
        from torch import _C

        _C._cuda_beginAllocateCurrentThreadToPool(self.device, self.handle)
        try:
            yield
        finally:
            _C._cuda_endAllocateToPool(self.device, self.handle)
            _C._cuda_releasePool(self.device, self.handle)


_pools: WeakSet[Pool] = WeakSet()


class PoolUse(NamedTuple):
    """The memory of a pool, in bytes."""

    pool: Pool
    reserved: int
    used: int


def pool_uses() -> list[PoolUse]:
    """Return how much memory each pool has, those of the same owner next to each other."""
    pools = {tuple(pool.handle): pool for pool in tuple(_pools)}
    if not pools:
        return []
    import torch

    reserved, used = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for segment in torch.cuda.memory_snapshot():
        reserved[tuple(segment["segment_pool_id"])] += segment["total_size"]
        used[tuple(segment["segment_pool_id"])] += segment["allocated_size"]
    uses = (PoolUse(pool, reserved[handle], used[handle]) for handle, pool in pools.items())
    return sorted(uses, key=lambda use: (use.pool.device, use.pool.what, -use.reserved))


def address_check() -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], bool]:
    """Return a function `(tensors, addresses, indices)` that checks the data pointers of the tensors at these indices."""
    from torch import _C

    return getattr(_C, "_tensors_data_ptrs_at_indices_equal", None) or _are_at


def _are_at(tensors: Sequence[Any], addresses: Sequence[Any], indices: Sequence[int]) -> bool:
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)
