"""What each line of source cost while it was traced."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.comptime import TracedGuard
from dynx.records.location import Location
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class LineCost(Record):
    """One line of one function, summed over all compilations that count.

    Times are wall seconds of tracing, without the backend's.
    """

    location: Location
    source: str  # the line as it was
    instructions: int
    seconds: float  # in the line itself
    cumulative: float  # with the functions it inlined
    nodes: tuple[str, ...]  # of the FX graph, that the line added
    guards: tuple[TracedGuard, ...]  # that the line asked for, also where another line had asked before
    shape_guards: tuple[str, ...]
    exceptions: int  # of the traced code, raised or passed on here


@dataclass(frozen=True, slots=True)
class TracedCompile(Record):
    """One compilation by what its time went into, in wall seconds."""

    id: str
    location: Location
    attempts: int
    seconds: float  # tracing, in the attempt that counts
    backend: float
    wasted: float  # tracing and backend, in attempts that were thrown away
