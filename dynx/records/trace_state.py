"""What the tracer knew before one instruction."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.post_mortem import FrameState
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class TraceState(Record):
    """The state of a trace before one instruction, as the debugger's recorder wrote it down.

    `frames` are the symbolic frames, innermost first; `nodes` and `guards` count what the graph and the attempt had.
    """

    number: int  # of the instruction, in the order they were traced
    id: str  # compile id
    attempt: int
    frames: tuple[FrameState, ...]
    nodes: int
    guards: int
    exception: str | None = None  # "raised <ValueError>", "handling <ValueError>": of the traced code
