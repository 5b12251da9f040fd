"""Records of the state of Dynamo (frames, variables, graph, guards) at a graph break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynx.records.comptime import TracedGuard
from dynx.records.location import Location
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class FrameState(Record):
    """One frame that Dynamo was tracing: its current instruction, value stack and local variables, as text."""

    location: Location  # with the columns of the instruction
    instruction: str  # "CALL 1"
    stack: tuple[str, ...]  # Python's value stack before the instruction, the top last
    locals: Mapping[str, str]  # by the user's names
    source: tuple[str, ...] = ()  # the lines of source around the instruction
    first_line: int = 0  # number of the first line in `source`


@dataclass(frozen=True, slots=True)
class BreakState(Record):
    """The state of Dynamo at a graph break or a failed compilation.

    `frames` are the frames being traced, innermost first; `graph` is the code of the graph that was being traced.
    """

    id: str  # compile id
    attempt: int
    location: Location  # the innermost line of the user's code
    reason: str  # torch's headline
    kind: str  # torch's gb_type
    explanation: str
    hints: tuple[str, ...]
    frames: tuple[FrameState, ...]
    graph: str
    nodes: int
    guards: tuple[TracedGuard, ...]
    resumable: bool = True
    count: int = 1

    @property
    def cause(self) -> tuple[str, int, str]:
        """File, line and kind of the graph break; of several records with equal causes, only one is kept."""
        return self.location.file, self.location.line, self.kind or self.reason
