"""Collect the graphs that the backend compiles, for `cudagraphs.explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dynx.records.cudagraphs import GraphPlan, GraphUse

if TYPE_CHECKING:
    from dynx.cudagraphs._compiled.runner import Runner


@dataclass(slots=True)
class CompiledGraph:
    """A graph that the backend compiled, with its runners: one, or one for each captured piece; none if it runs uncaptured."""

    plan: GraphPlan
    runners: Sequence[Runner] = ()

    def use(self) -> GraphUse:
        """Return how often the graph was captured and replayed so far, how much replays copy, and how much memory it holds."""
        recordings = [recording for runner in self.runners for recording in runner.recordings]
        notes = [note for runner in self.runners for note in runner.notes]
        reasons = [recording.why_not_patched for recording in recordings if recording.why_not_patched]
        is_whole = len(self.runners) == 1 and not self.plan.pieces
        staging = Counter(recording.staging for recording in recordings)
        return GraphUse(
            self.runners[0].plan if is_whole else self.plan,  # the current plan: inputs may have become dynamic
            recordings=len(recordings),
            replays=sum(recording.tally.times for recording in recordings),
            copies=sum(recording.tally.copies for recording in recordings),
            bytes_copied=sum(recording.tally.nbytes for recording in recordings),
            bytes_held=sum(recording.nbytes for recording in recordings),
            notes=tuple(dict.fromkeys([*notes, *(f"inputs are copied, not patched: {reason}" for reason in reasons)])),
            staging=tuple(replace(choice, count=count) for choice, count in staging.items()),
        )


_observers: list[list[CompiledGraph]] = []


def notify_compiled(plan: GraphPlan, runners: Sequence[Runner] = ()) -> None:
    """Append a compiled graph to the list of each active `compiled_graphs` context."""
    for graphs in _observers:
        graphs.append(CompiledGraph(plan, runners))


@contextmanager
def compiled_graphs() -> Iterator[list[CompiledGraph]]:
    """Yield a list to which the backend appends each graph that it compiles in this context."""
    graphs: list[CompiledGraph] = []
    _observers.append(graphs)
    try:
        yield graphs
    finally:
        _observers.remove(graphs)
