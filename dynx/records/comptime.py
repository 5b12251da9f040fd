"""Records of a trace: guards, states, times, and what comptime callbacks (functions run during the trace) logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location, short_path
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class Logged(Record):
    """The values of one `ctx.log(...)` in a comptime callback; one record, even if Dynamo traced the line in several attempts.

    `outcome` is the outcome of the last attempt: "skipped" and "failed" attempts led to no compiled code.
    """

    id: str  # compile id, "0/1"
    location: Location | None
    values: Mapping[str, str]
    outcome: Literal["committed", "skipped", "failed"] = "committed"

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.values.items())
        where = f"{short_path(self.location.file)}:{self.location.line} {self.location.function}" if self.location else "?"
        return f"{where} [{self.id}] {values}"


@dataclass(frozen=True, slots=True)
class TracedGuard(Record):
    """A guard that Dynamo has requested so far in a trace, with the line that requested it first."""

    kind: str  # torch's name, "TENSOR_MATCH"
    source: str  # "L['x']"; empty for guards on global state
    location: Location | None


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


@dataclass(frozen=True, slots=True)
class TraceState(Record):
    """The state of Dynamo before it traced one instruction, as `dynx.comptime.debug` recorded it.

    `frames` are the frames being traced, innermost first. `nodes` is the number of nodes in the graph, and `guards` the number
    of guards that Dynamo has requested, both so far in this trace attempt.
    """

    number: int  # index of the instruction, in the order of tracing
    id: str  # compile id
    attempt: int
    frames: tuple[FrameState, ...]
    nodes: int
    guards: int
    exception: str | None = None  # "raised <ValueError>", "handling <ValueError>": of the traced code


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
