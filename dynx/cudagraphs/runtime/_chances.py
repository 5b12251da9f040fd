"""Where random numbers go on from while a graph is captured on the CPU, and when it is replayed."""

from __future__ import annotations

import torch

from dynx.errors import CaptureFailed


class Chances:
    """States of the generator: the one that it began with, and those after each draw.

    A capture may set back one of these, as `checkpoint` does before it computes something again: CUDA does so in the graph.
    """

    def __init__(self) -> None:
        self._states = [torch.get_rng_state()]

    def drawn(self, before: torch.Tensor) -> int | None:
        """Note a draw, if there was one since a state; gives after how many others it was."""
        if torch.equal(before, torch.get_rng_state()):
            return None
        place = self._place_of(before)
        self.note()
        return place

    def note(self) -> None:
        self._states.append(torch.get_rng_state())

    def place(self) -> int:
        """Give after how many draws the next is. Raises CaptureFailed where another seed was set."""
        return self._place_of(torch.get_rng_state())

    def go_on_from(self, place: int) -> None:
        torch.set_rng_state(self._states[place])

    def _place_of(self, state: torch.Tensor) -> int:
        found = next((place for place, each in enumerate(self._states) if torch.equal(each, state)), None)
        if found is None:
            raise CaptureFailed("another seed is set while a graph is captured\n  set it outside")
        return found
