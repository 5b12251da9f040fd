"""Record of the state of Dynamo before it traced one instruction."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.post_mortem import FrameState
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class TraceState(Record):
    """The state of Dynamo before it traced one instruction, as `dynx.comptime.debug` recorded it.

    `frames` are the frames being traced, innermost first; `nodes` counts the nodes of the graph so far, `guards` the guards
    that the attempt has requested so far.
    """

    number: int  # index of the instruction, in the order of tracing
    id: str  # compile id
    attempt: int
    frames: tuple[FrameState, ...]
    nodes: int
    guards: int
    exception: str | None = None  # "raised <ValueError>", "handling <ValueError>": of the traced code
