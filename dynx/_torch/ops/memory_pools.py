"""Memory pools of CUDA graphs, the memory segments of torch's CUDA allocator, and cuBLAS workspaces.

Torch: `torch._C._cuda_beginAllocateCurrentThreadToPool`, `_cuda_endAllocateToPool`, `_cuda_releasePool`,
`_cuda_memorySnapshot` and `_cuda_clearCublasWorkspaces`, which are missing in builds without CUDA.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet, finalize


def segments() -> list[Mapping[str, Any]]:
    """Return the memory segments of torch's CUDA allocator, on all devices, as `torch.cuda.memory_snapshot` does.

    `memory_snapshot` itself releases references to integers that it does not own, which crashes the process after calls with
    the id of a pool, and in Python 3.11 also after many calls without it (pytorch#196366).
    """
    from torch import _C

    return _C._cuda_memorySnapshot(None)["segments"]


def clear_workspaces() -> None:
    """Free the cuBLAS workspaces of all streams and threads; torch allocates new workspaces when they are needed."""
    from torch import _C

    _C._cuda_clearCublasWorkspaces()


class Pool:
    """A memory pool for CUDA graphs, kept alive by this object; `what` names the owner of the memory in messages.

    A pool that has only a `graph_pool_handle` cannot be used after its first graph is freed. `torch.cuda.MemPool` also lives as
    long as its object, but it empties caches when it is freed, and aborts if that happens during a capture (2.11). The calls
    below are made in the same order as in `torch.cuda.use_mem_pool`: begin, end, release.
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
        """Let this thread allocate from the pool inside the context."""
        from torch import _C

        _C._cuda_beginAllocateCurrentThreadToPool(self.device, self.handle)
        try:
            yield
        finally:
            _C._cuda_endAllocateToPool(self.device, self.handle)
            _C._cuda_releasePool(self.device, self.handle)

    def bytes_used(self) -> int:
        """Return how many bytes of the pool are allocated now."""
        own = (segment for segment in segments() if tuple(segment["segment_pool_id"]) == tuple(self.handle))
        return sum(segment["allocated_size"] for segment in own)


_pools: WeakSet[Pool] = WeakSet()


class PoolUse(NamedTuple):
    """How many bytes a pool has reserved, and how many of them are allocated to tensors (used)."""

    pool: Pool
    reserved: int
    used: int


def pool_uses() -> list[PoolUse]:
    """Return how much memory each pool uses, sorted by device, owner (`what`) and size, the largest pool of an owner first."""
    pools = {tuple(pool.handle): pool for pool in tuple(_pools)}
    if not pools:
        return []
    reserved, used = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for segment in segments():
        reserved[tuple(segment["segment_pool_id"])] += segment["total_size"]
        used[tuple(segment["segment_pool_id"])] += segment["allocated_size"]
    uses = (PoolUse(pool, reserved[handle], used[handle]) for handle, pool in pools.items())
    return sorted(uses, key=lambda use: (use.pool.device, use.pool.what, -use.reserved))
