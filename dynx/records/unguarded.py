"""Records of values that compiled code read while it was traced, and that no guard watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record

ReadKind = Literal[
    "attribute", "method", "function", "hooks", "identity", "key", "absent key",
    "import", "builtin", "guard", "isinstance", "order", "call", "constant result",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class UnguardedRead(Record):
    """One value: how the program reads it, the value while it was traced, and the line that reads it."""

    kind: ReadKind
    text: str  # "C.scale"
    value: str
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Unguarded(Record):
    """What one compilation read."""

    generation: int
    id: str  # compile id, "0/1"
    location: Location  # of the compiled function
    reads: tuple[UnguardedRead, ...]


@dataclass(frozen=True, slots=True)
class StaleValue(Record):
    """A value that changed while compiled code kept the old one: `calls` calls ran this code after the change."""

    generation: int
    id: str
    location: Location  # of the compiled function
    kind: ReadKind
    text: str
    before: str
    now: str
    calls: int
    read_at: Location | None = None
    seen: Location | None = None  # the call before which the change was noticed
