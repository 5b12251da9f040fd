"""Records of the time that Dynamo spent tracing, by line and by compilation."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.comptime import TracedGuard
from dynx.records.location import Location
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class LineCost(Record):
    """The time that Dynamo spent tracing one line, summed over all compilations.

    Only attempts that were not discarded count. Times are wall seconds of tracing; the time of the backend is not included.
    """

    location: Location
    source: str  # the text of the line
    instructions: int
    seconds: float  # in the line itself
    cumulative: float  # including the functions it inlined
    nodes: tuple[str, ...]  # FX nodes that the line added to the graph
    guards: tuple[TracedGuard, ...]  # that the line requested, even if another line had requested them before
    shape_guards: tuple[str, ...]
    exceptions: int  # of the traced code, raised or propagated by the line


@dataclass(frozen=True, slots=True)
class TracedCompile(Record):
    """The wall seconds of one compilation, split into tracing, backend and discarded attempts."""

    id: str
    location: Location
    attempts: int
    seconds: float  # tracing, in the committed attempt
    backend: float
    wasted: float  # tracing and backend, in discarded attempts
