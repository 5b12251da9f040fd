"""Replay CUDA graphs and compare addresses with as little Python overhead as possible, and manage their memory pools.

Torch: `torch._C._CUDAGraph.replay`, which `CUDAGraph.replay` wraps in Python and from 2.15 on with hooks;
`torch._C._cuda_getCurrentRawStream` and `torch._C._tensors_data_ptrs_at_indices_equal`, which builds without CUDA lack.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import finalize


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


def recover(device: int, pool: Any) -> None:
    """Clean up after a failed CUDA graph capture: unmark the device's generator as captured, and release the memory pool.

    Torch: `CUDAGraph.capture_end` raises before it does so itself, as seen in 2.11 (pytorch#190348).
    """
    import torch
    from torch import _C

    generator = torch.cuda.default_generators[device]
    generator.graphsafe_set_state(generator.clone_state())  # a copy of the state is not marked as captured
    with contextlib.suppress(RuntimeError):  # torch has already ended the allocation
        _C._cuda_endAllocateToPool(device, pool)
        _C._cuda_releasePool(device, pool)  # the start of the capture added a reference


class Pool:
    """A memory pool for CUDA graphs that lives as long as this object.

    The pool of a plain `graph_pool_handle` cannot be used any more once its first graph is freed. Torch:
    `torch.cuda.use_mem_pool` begins, ends and releases a pool in this order; `torch.cuda.MemPool` also lives as long as its
    object, but empties caches when it is freed, and aborts if that happens during a capture (2.11).
    """

    def __init__(self, device: int) -> None:
        import torch
        from torch import _C

        self.handle = torch.cuda.graph_pool_handle()
        _C._cuda_beginAllocateCurrentThreadToPool(device, self.handle)
        _C._cuda_endAllocateToPool(device, self.handle)
        finalize(self, _C._cuda_releasePool, device, self.handle).atexit = False


def address_check() -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], bool]:
    """Return a function `(tensors, addresses, indices)` that checks the data pointers of the tensors at these indices."""
    from torch import _C

    return getattr(_C, "_tensors_data_ptrs_at_indices_equal", None) or _are_at


def _are_at(tensors: Sequence[Any], addresses: Sequence[Any], indices: Sequence[int]) -> bool:
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)
