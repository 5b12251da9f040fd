"""The CUDA graphs of recordings, for users to inspect and modify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from dynx.cudagraphs._runtime.interface import CapturedGraph
from dynx.errors import UsageError
from dynx.records.cudagraphs import Part


@dataclass(frozen=True, slots=True)
class RawGraph:
    """A captured CUDA graph; `part` is "call" (a function, or its forward pass), "backward" or "step" (a training step)."""

    part: Part
    _captured: CapturedGraph

    def raw_cuda_graph(self) -> int:
        """Return the graph as a cudaGraph_t, like `torch.cuda.CUDAGraph.raw_cuda_graph`; valid while the recording exists.

        Raises UsageError for a graph of the emulator.
        """
        return self._captured.raw_cuda_graph()

    def instantiate(self) -> None:
        """Instantiate the graph again after you modified it, as `torch.cuda.CUDAGraph.instantiate` does; waits for the device.

        As before, each replay sets the pointers to inputs and results in memcpy nodes or kernels.
        """
        self._captured.instantiate()


def raw_graphs(fn: Callable[..., Any], /) -> tuple[RawGraph, ...]:
    """Return the CUDA graphs of a callable that `graphed`, `fast_path` or `train_step` returned.

    Modify a graph with functions of the CUDA driver (cuda-bindings), then call `instantiate` of its `RawGraph`.

    Args:
        fn: What `graphed`, `fast_path` or `train_step` returned.

    Returns:
        The graphs in the order in which they were captured.

    Raises:
        UsageError: `fn` is not such a callable.

    Example:
        >>> import torch
        >>> from dynx import cudagraphs
        >>> config = cudagraphs.Config(runtime="emulator")
        >>> run = cudagraphs.graphed(torch.nn.Linear(2, 2), (torch.ones(1, 2),), config=config)
        >>> [graph.part for graph in cudagraphs.raw_graphs(run)]
        ['call', 'backward']
    """
    recorded = vars(fn).get("forward") if isinstance(fn, nn.Module) else fn
    recordings = getattr(recorded, "recordings", None)
    if recordings is None:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise UsageError(f"{name} has no recordings (CUDA graphs)\n  pass what graphed, fast_path or train_step returned")
    return tuple(RawGraph(*graph) for recording in recordings for graph in recording.captured)
