"""Replay CUDA graphs and compare addresses with as little Python overhead as possible, and clean up after failed captures.

Torch: `torch._C._CUDAGraph.replay`, which `CUDAGraph.replay` wraps in Python (from 2.15 on with hooks); and two functions
missing in builds without CUDA: `torch._C._cuda_getCurrentRawStream` and `torch._C._tensors_data_ptrs_at_indices_equal`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point


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
    """Return a fast function (a fraction of a microsecond) that returns the index of the calling thread's current device."""
    from torch import _C

    return _C._cuda_getDevice


def capture_check() -> Callable[[], bool]:
    """Return `torch.cuda.is_current_stream_capturing`, or the faster C++ function that it calls if torch is built with CUDA."""
    import torch
    from torch import _C

    return getattr(_C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing)


@contextlib.contextmanager
def report_as_capturing(is_capturing: Callable[[], bool]) -> Iterator[None]:
    """Make `torch.cuda.is_current_stream_capturing` also return True if `is_capturing` does.

    Libraries such as transformers then do not read values of tensors, which is not allowed in a capture. Where there is a CUDA
    device, torch's optimizers ask too, and require `capturable=True`, which they refuse for parameters on the CPU: as on a
    machine without a device, they do not ask.
    """

    def asks(original: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda optimizer: None if is_capturing() else original(optimizer)

    with (
        hooks.wrap(hook_point("stream_capturing"), lambda original: lambda: is_capturing() or original()),
        hooks.wrap(hook_point("optimizer_asks"), asks),
    ):
        yield


def profiler_flags() -> tuple[dict[str, Any], str]:
    """Return a dict and a key: `dict[key]` is true while torch's profiler is on, a check that is fast enough for each replay.

    Torch: `torch.autograd.profiler._is_profiler_enabled`, a flag that is read faster than its C++ counterpart.
    """
    from torch.autograd import profiler

    return vars(profiler), "_is_profiler_enabled"


def is_same_generator(generator: Any, other: Any) -> bool:
    """Return whether two `torch.Generator` objects wrap the same C++ generator; torch may create several objects for it."""
    return bool(generator._cdata == other._cdata)


def recover(device: int, pool: Any, stream: Any, generators: Sequence[Any]) -> None:
    """Clean up after a failed CUDA graph capture: release the memory pool, and end the capture for random generators.

    The failed capture leaves the device's generator and `generators` marked as capturing. An empty capture on `stream`, which
    nothing else may use at that time, removes the mark. A new generator state would have no mark either, but graphs that were
    captured before would keep the old state: each replay would draw the same random numbers, whatever `torch.manual_seed` sets.

    Torch: `CUDAGraph.capture_end` raises before it cleans up itself, as seen in 2.11 (pytorch#190348).
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
        warnings.simplefilter("ignore")  # "the graph is empty"
        graph.capture_begin(capture_error_mode="thread_local")
        graph.capture_end()


def clear_error_of_solver(device: Any) -> None:
    """Clear the error that a failed capture leaves in cuSOLVER: call cuSOLVER, if it is loaded, and ignore the error.

    Otherwise the next decomposition in the user's code would raise this error (seen with torch 2.11 and CUDA 13, also without
    dynx).
    """
    import torch

    if _has_loaded("libcusolver"):
        with contextlib.suppress(RuntimeError):
            torch.linalg.cholesky(torch.eye(2, device=device))


def _has_loaded(library: str) -> bool:
    try:
        with open("/proc/self/maps") as maps:
            return any(library in line for line in maps)
    except OSError:  # not Linux
        return True


def address_check() -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], bool]:
    """Return a predicate `(tensors, addresses, indices)`: `tensors[i].data_ptr() == addresses[i]` for all `i` in `indices`."""
    from torch import _C

    return getattr(_C, "_tensors_data_ptrs_at_indices_equal", None) or _are_at


def _are_at(tensors: Sequence[Any], addresses: Sequence[Any], indices: Sequence[int]) -> bool:
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)
