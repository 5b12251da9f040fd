"""What a runtime offers: to capture a function as a graph, and to replay it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Copy = tuple[torch.Tensor, torch.Tensor]  # to the first from the second


Function = Callable[[Sequence[torch.Tensor]], Any]  # of copies of inputs

Copied = Callable[[Any], Sequence[torch.Tensor]]  # of what a function gives: what is copied to where the caller says


def no_results(outputs: Any) -> Sequence[torch.Tensor]:
    return ()


class Captured(Protocol):
    """A captured graph: replaying it does what the function did, on the same memory."""

    outputs: Any  # of the function; written by each replay

    def replay(self) -> None:
        """Do it."""

    def set_sources(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have the copies that were captured read from these tensors, alike in layout, from the next replay on."""

    def set_targets(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have the results that were asked for copied to these tensors, alike in layout, by the next replay."""

    def release(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let graphs that are captured later in the same pool have the memory of tensors, where the capture has made them.

        Nobody may read them after a replay.
        """

    def raw(self) -> int:
        """Give the driver's handle of the graph (a cudaGraph_t), which may be changed."""

    def instantiate(self) -> None:
        """Have the next replays do what the graph does now, after changes to it."""

    def close(self) -> None:
        """Give back what it holds."""


class Runtime(Protocol):
    """Captures functions whose tensors lie on one kind of device."""

    device: torch.device

    def warm_up(self, function: Callable[[], Any]) -> Any:
        """Run a function as the capture will run it, so that what it sets up once is set up."""

    def is_warm(self) -> bool:
        """Tell whether something was warmed up in this thread: some of what is set up belongs to a thread."""

    def is_capturing(self) -> bool:
        """Tell whether what this thread does now is captured."""

    def copies_in_graph(self) -> bool:
        """Tell whether a graph can begin with copies whose sources are set before a replay."""

    def new_pool(self) -> Any:
        """Make a pool of memory of its own."""

    def capture(
        self, function: Function, sources: Sequence[torch.Tensor] = (), results: Copied = no_results, pool: Any = None
    ) -> Captured:
        """Capture copies of inputs, a function of them, and copies of some of its results, none of which is executed.

        Graphs of one pool share the memory of what they need in between: a replay may overwrite results of graphs that were
        captured later. Without a pool that of the runtime is taken.

        Raises what the function raises, and CaptureFailed for what cannot be captured.
        """

    def capture_reading(
        self, function: Callable[[Sequence[torch.Tensor]], Any], inputs: Sequence[torch.Tensor], results: Copied, pool: Any
    ) -> Captured:
        """Capture a function that reads inputs where they lie; `set_sources` has it read others, alike in layout.

        The function is captured several times, and replayed to see that it reads what it is told: it must change nothing.
        Raises NotPatchable where it cannot be told what to read.
        """
