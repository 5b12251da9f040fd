"""The shortest ways to what a replay needs.

Torch: `torch._C._CUDAGraph.replay`, around which `CUDAGraph.replay` is a wrapper in Python, in 2.15 one that runs hooks;
`torch._C._cuda_getCurrentRawStream` and `torch._C._tensors_data_ptrs_at_indices_equal`, which builds without CUDA lack.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import finalize


def is_plain(graph: Any) -> bool:
    """Tell whether a replay in Python does nothing but call the one in C++; hooks make it do more."""
    return set(type(graph).replay.__code__.co_names) <= {"super", "replay"}


def replay_of(graph: Any) -> Callable[[], None]:
    """Give what replays a graph: the function in C++ where the one in Python does nothing but call it."""
    from torch import _C

    return partial(_C._CUDAGraph.replay, graph) if is_plain(graph) else graph.replay


def current_stream_of(device: int) -> Callable[[], int]:
    """Give what gives the driver's handle of the current stream."""
    from torch import _C

    return partial(_C._cuda_getCurrentRawStream, device)


def recover(device: int, pool: Any) -> None:
    """Take back what a failed capture leaves: a generator that thinks it is captured, a pool that is allocated from and held.

    Torch: `CUDAGraph.capture_end` raises before it does so itself, seen in 2.11 (pytorch#190348).
    """
    import torch
    from torch import _C

    generator = torch.cuda.default_generators[device]
    generator.graphsafe_set_state(generator.clone_state())  # a copy is not captured
    with contextlib.suppress(RuntimeError):  # where torch has ended it
        _C._cuda_endAllocateToPool(device, pool)
        _C._cuda_releasePool(device, pool)  # which the beginning of the capture took hold of


class Pool:
    """A pool of memory for graphs, which lasts as long as this does: that of a handle cannot be used after its first graph.

    Torch: `torch.cuda.use_mem_pool` begins, ends and releases in this order; `torch.cuda.MemPool`, which lasts as long as it is
    held too, empties caches when it goes, and aborts where that is during a capture (2.11).
    """

    def __init__(self, device: int) -> None:
        import torch
        from torch import _C

        self.handle = torch.cuda.graph_pool_handle()
        _C._cuda_beginAllocateCurrentThreadToPool(device, self.handle)
        _C._cuda_endAllocateToPool(device, self.handle)
        finalize(self, _C._cuda_releasePool, device, self.handle).atexit = False


def address_check() -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], bool]:
    """Give what tells whether the tensors at some indices lie at the addresses given."""
    from torch import _C

    return getattr(_C, "_tensors_data_ptrs_at_indices_equal", None) or _are_at


def _are_at(tensors: Sequence[Any], addresses: Sequence[Any], indices: Sequence[int]) -> bool:
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)
