"""RNG states of the CPU in captures of the emulator, and in their replays."""

from __future__ import annotations

import torch

from dynx.cudagraphs._runtime.rng_errors import DRAWS_TWICE, SEED_WAS_SET
from dynx.errors import CaptureFailed


class RngStates:
    """The CPU RNG states that a captured function may restore, as `torch.utils.checkpoint` does before recomputation.

    They are the states of the forward pass, the state at the beginning of the capture, and the state after each draw.

    Attributes:
        final_index: Index of the state at the end of the capture.
        last: The state at the end of the capture or, for an object that was made for a replay, at the end of that replay.
    """

    def __init__(self, forward: RngStates | None) -> None:
        earlier = [] if forward is None else forward._states
        self.last = torch.get_rng_state()
        self._states: list[torch.Tensor] = [*earlier, self.last]
        self._begin = len(earlier)
        self._drawn = set[bool]()  # for the draws: whether they repeat the forward pass
        self.final_index = self._begin

    def record_draw(self, before: torch.Tensor) -> int | None:
        """Append the current RNG state if the last operator drew random numbers; `before` is the state before that operator.

        Returns the index of `before`; None if no numbers were drawn. Raises CaptureFailed if `before` is not among the stored
        states (then a seed was set), or if some draws repeat draws of the forward pass and other draws do not.
        """
        if torch.equal(before, torch.get_rng_state()):
            return None
        index = self._index_of(before)
        self._drawn.add(index < self._begin)
        if len(self._drawn) > 1:
            raise CaptureFailed(DRAWS_TWICE)
        self.append_current()
        return index

    def append_current(self) -> None:
        self._states.append(torch.get_rng_state())

    def end(self, outside: torch.Tensor) -> None:
        """Store the RNG state at the end of the capture. Raises CaptureFailed if a seed was set during the capture.

        `outside` is the RNG state before the capture. If nothing was drawn, this state may be current again at the end: torch
        may have restored it in another thread.
        """
        self.last = torch.get_rng_state()
        if not self._drawn and torch.equal(self.last, outside):
            self.last = self._states[self._begin]
        self.final_index = self._index_of(self.last)

    @property
    def changes(self) -> bool:
        """Whether the capture drew random numbers, or restored an earlier state."""
        return bool(self._drawn) or self.final_index != self._begin

    def restore(self, index: int) -> None:
        torch.set_rng_state(self._states[index])

    def _index_of(self, state: torch.Tensor) -> int:
        own = range(self._begin, len(self._states))  # first: the begin state may also be one of the forward pass
        index = next((index for index in (*own, *range(self._begin)) if torch.equal(self._states[index], state)), None)
        if index is None:
            raise CaptureFailed(SEED_WAS_SET)
        return index
