"""What can be replayed: one recording, or a forward and a backward recording as a pair."""

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

    held: Any  # what must live as long as the recording, since keys contain its addresses

    def run(self, args: Sequence[Any], /) -> list[Any]:
        """Replay with these inputs, and return the results."""

    def close(self) -> None:
        """Release the memory."""

    @property
    def has_backward(self) -> bool:
        """Whether a backward pass reads the recording's memory after `run`."""

    @property
    def is_pending(self) -> bool:
        """Whether a backward pass will still read what the last replay saved."""

    @property
    def may_return_arguments(self) -> bool:
        """Whether results may alias arguments, or arguments are copied: both write to tensors of the caller."""

    @property
    def kept_outputs(self) -> Sequence[torch.Tensor]:
        """Tensors besides the results that a replay writes, in the recording's memory."""

    @property
    def captured(self) -> list[tuple[Part, CapturedGraph]]:
        """The captured graphs, and what they are of."""

    @property
    def why_not_patched(self) -> str:
        """Why inputs are copied although the configuration asks for patched pointers; "" otherwise."""


class MakeReplayable(Protocol):
    """Records a call."""

    def __call__(self, call: Call, plan: GraphPlan, config: Config, runtime: Runtime, args: Sequence[Any], /) -> Replayable: ...
