"""The protocol of what is cached and replayed: one recording, or a pair of a forward and a backward recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._runtime.interface import CapturedGraph, Runtime
from dynx.records.cudagraphs import GraphPlan, Part

Call = Callable[[list[Any]], Sequence[Any]]


class Replayable(Protocol):
    """A recording, or a pair of a forward and a backward recording."""

    held: Any  # objects that must live as long as the recording, since its key contains their ids

    def run(self, args: Sequence[Any], /) -> list[Any]:
        """Replay with the inputs `args`, and return the results."""

    def verify(self, uncaptured: Call, memory: Callable[[], Sequence[Any]], what: str, times: int) -> None:
        """Compare each of the next `times` replays with a call of `uncaptured`; messages call the recording `what`.

        `uncaptured` runs the function and undoes its assignments to attributes and variables. `memory` returns the tensors,
        besides the arguments, to which compiled or custom kernels may write.
        """

    def close(self) -> None:
        """Release the memory of the captured graphs."""

    @property
    def has_backward(self) -> bool:
        """Whether a backward pass may read the recording's memory after `run`."""

    @property
    def is_pending(self) -> bool:
        """Whether a backward pass may still read tensors that the last replay saved."""

    @property
    def may_return_arguments(self) -> bool:
        """Whether a replay copies arguments or returns aliases of them. Run such a replay under no_grad."""

    @property
    def kept_outputs(self) -> Sequence[torch.Tensor]:
        """Tensors besides the user's results that a replay writes in the recording's memory, such as gradients."""

    @property
    def captured(self) -> list[tuple[Part, CapturedGraph]]:
        """The captured graphs, each with the part that it computes, such as "forward" or "backward"."""

    @property
    def why_not_patched(self) -> str:
        """Why inputs are copied although the configuration asks for patched pointers; "" otherwise."""


MakeReplayable = Callable[[Call, GraphPlan, Config, Runtime, Sequence[Any]], Replayable]  # captures a call with these inputs
