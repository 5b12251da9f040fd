"""Records of compile-cache lookups, sizes that became dynamic, warnings of torch, and failures of dynx itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record

TORCHS_PROFILE = "torch's profile"  # the name, in records, of the profile that torch loads itself


@dataclass(frozen=True, slots=True)
class CacheEvent(Record):
    """One lookup in a compile cache on disk (FX graph cache, AOTAutograd cache): hit, miss or bypass."""

    cache: Literal["fx_graph", "aot_autograd"]
    result: Literal["hit", "miss", "bypass"]
    generation: int
    id: str
    location: Location | None
    reason: str | None = None  # why it was bypassed, as torch words it
    count: int = 1


@dataclass(frozen=True, slots=True)
class BecameDynamic(Record):
    """A size, stride or number that torch made symbolic, since it had two different values.

    If `profile` names a PGO profile, the profile made it symbolic, even without a second value in this run. Then `first` and
    `second` are values of earlier runs, or empty if the profile has no values.
    """

    source: str  # "L['x']"
    dim: str  # "size 1", "stride 0", "rank", "scalar"
    first: str
    second: str
    generation: int
    id: str
    location: Location | None
    profile: str | None = None  # "profile.json", or "torch's profile"
    run: str | None = None  # the run of the profile in which it had both values

    def __str__(self) -> str:
        """Return `L['x'] size 0: 4, then 5`; with a profile, `L['x'] size 0: dynamic from p.json, 4 then 5 in run A`."""
        name = f"{self.source} {self.dim}"
        if self.profile is None:
            return f"{name}: {self.first}, then {self.second}"
        values = f", {self.first} then {self.second}" if self.first else ""
        return f"{name}: dynamic from {self.profile}{values}" + (f" in run {self.run}" if self.run else "")


@dataclass(frozen=True, slots=True)
class ProfileMiss(Record):
    """A function whose closure has a different hash in a PGO profile, so torch does not use the profile's sizes for it."""

    profile: str  # "profile.json", or "torch's profile"
    generation: int
    id: str
    location: Location


@dataclass(frozen=True, slots=True)
class Specialized(Record):
    """A size or number that torch made symbolic, and that a line of code then specialized to the value of that compilation.

    A call with any other value recompiles; `mark_dynamic` on the size raises ConstraintViolationError.
    """

    source: str  # "L['x'].size()[1]"
    generation: int
    id: str
    location: Location | None  # the line that needed the value
    code: str = ""  # the source line at `location.own`
    profile: str | None = None  # the profile that made it symbolic


@dataclass(frozen=True, slots=True)
class TorchWarning(Record):
    """A warning or log message of torch during a compilation; torch emits most of its warnings once per process."""

    text: str
    origin: str  # logger or warning category
    location: Location | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Trouble(Record):
    """A failure of dynx itself, because of which records may be missing; the program was not affected."""

    what: str
    why: str
    count: int = 1
