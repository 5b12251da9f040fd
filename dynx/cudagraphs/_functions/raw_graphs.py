"""The CUDA graphs of what was recorded, for who wants to look at them or change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from dynx.cudagraphs._runtime.interface import Captured
from dynx.errors import UsageError
from dynx.records.cudagraphs import Part


@dataclass(frozen=True, slots=True)
class RawGraph:
    """A captured CUDA graph; `part` is what it is of."""

    part: Part
    _captured: Captured

    def raw_cuda_graph(self) -> int:
        """Give the graph as a cudaGraph_t, as `torch.cuda.CUDAGraph.raw_cuda_graph` does; it lasts as long as the recording.

        Raises UsageError for a graph of the emulator.
        """
        return self._captured.raw()

    def instantiate(self) -> None:
        """Have the next replays do what the graph does now, as `torch.cuda.CUDAGraph.instantiate` does; waits for the device.

        Copies of inputs and results are still told where to copy from and to, and nodes that are patched where inputs lie.
        """
        self._captured.instantiate()


def raw_graphs(recorded: Callable[..., Any]) -> tuple[RawGraph, ...]:
    """Give the CUDA graphs of what `graphed`, `fast_path` or `train_step` gave, in the order in which they were recorded.

    Change one with the driver's functions (cuda-bindings), then call its `instantiate`. Raises UsageError for other functions.

    >>> import torch
    >>> from dynx import cudagraphs
    >>> config = cudagraphs.Config(runtime="emulator")
    >>> run = cudagraphs.graphed(torch.nn.Linear(2, 2), (torch.ones(1, 2),), config=config)
    >>> [graph.part for graph in cudagraphs.raw_graphs(run)]
    ['call', 'backward']
    """
    found = vars(recorded).get("forward") if isinstance(recorded, nn.Module) else recorded
    recordings = getattr(found, "recordings", None)
    if recordings is None:
        raise UsageError(
            f"{getattr(recorded, '__name__', type(recorded).__name__)} was not recorded\n"
            "  give what graphed, fast_path or train_step gave"
        )
    return tuple(RawGraph(*graph) for each in recordings for graph in each.captured)
