"""Which graphs are compiled, for who asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynx.records.cudagraphs import GraphPlan, GraphUse

if TYPE_CHECKING:
    from dynx.cudagraphs._compiled.runner import Runner


@dataclass(slots=True)
class Heard:
    """A graph that was compiled, and what runs it: nothing, where it runs as it is."""

    plan: GraphPlan
    runners: Sequence[Runner] = ()

    def use(self) -> GraphUse:
        recordings = [each for runner in self.runners for each in runner.recordings]
        notes = [note for each in self.runners for note in each.notes]
        whys = [each.why_not_patched for each in recordings if each.why_not_patched]
        is_whole = len(self.runners) == 1 and not self.plan.pieces
        return GraphUse(
            self.runners[0].plan if is_whole else self.plan,  # that of now
            recordings=len(recordings),
            replays=sum(each.tally.times for each in recordings),
            copies=sum(each.tally.copies for each in recordings),
            bytes_copied=sum(each.tally.nbytes for each in recordings),
            bytes_held=sum(each.nbytes for each in recordings),
            notes=tuple(dict.fromkeys([*notes, *(f"inputs are copied, not patched: {each}" for each in whys)])),
        )


_listeners: list[list[Heard]] = []


def tell_of(plan: GraphPlan, runners: Sequence[Runner] = ()) -> None:
    for each in _listeners:
        each.append(Heard(plan, runners))


@contextmanager
def graphs() -> Iterator[list[Heard]]:
    """Collect the graphs that are compiled in this context."""
    heard: list[Heard] = []
    _listeners.append(heard)
    try:
        yield heard
    finally:
        _listeners.remove(heard)
