"""Why a function was compiled again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record

GuardKind = Literal[
    "size",
    "stride",
    "rank",
    "dtype",
    "device",
    "requires_grad",
    "tensor",  # properties of a tensor
    "value",
    "length",
    "keys",
    "none",
    "type",  # properties of a Python value
    "object",
    "function",
    "alias",
    "attribute",  # identity and presence
    "global_state",
    "backend",
    "config",
    "shape",
    "custom",  # a guard of the user's own, by name
    "other",
]

_OF_A_VALUE = ("rank", "dtype", "device", "requires_grad", "type", "length", "keys")  # whose source is the value itself


@dataclass(frozen=True, slots=True)
class Reason(Record):
    """One guard that failed.

    Holds rendered text, never the values: a record outlives the frame it describes.
    """

    kind: GuardKind
    source: str  # "L['x'].size()[0]"
    expected: str | None
    got: str | None  # None where the value could not be read without running the user's code
    location: Location | None  # the line that asked for the guard, or the call for ambient state
    rule: str | None = None  # "DX102" where an advice rule applies
    against: str | None = None  # the compile id whose guard failed
    holder: str | None = None  # what holds the value: "argument", "global", "module", "optimizer", "object"
    requesters: tuple[Location, ...] = ()  # every line that asked for it, in order
    text: str = ""  # torch's own words

    @property
    def subject(self) -> str:
        """What was compared: `x.size()[0]`, `dtype of x`."""
        return f"{self.kind} of {self.source}" if self.kind in _OF_A_VALUE else self.source


@dataclass(frozen=True, slots=True)
class Recompile(Record):
    """One more compilation of a function that had been compiled; the first reason is the newest entry's."""

    generation: int
    id: str
    location: Location
    reasons: tuple[Reason, ...]
    seconds: float = 0.0
    outcome: str = "compiled"

    @property
    def key(self) -> tuple[int, str]:
        return self.generation, self.id
