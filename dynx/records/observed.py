"""Records of compile-cache lookups, sizes that became dynamic, warnings of torch, and failures of dynx itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record


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
    """A size, stride or number that torch made symbolic after two different values."""

    source: str  # "L['x']"
    dim: str  # "size 1", "stride 0", "rank", "scalar"
    first: str
    second: str
    generation: int
    id: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class Specialized(Record):
    """A size or number that torch made symbolic, and that a line of code then fixed to the value of that compilation.

    Every other value recompiles, and `mark_dynamic` raises ConstraintViolationError for it.
    """

    source: str  # "L['x'].size()[1]"
    generation: int
    id: str
    location: Location | None  # the line that needed the value
    code: str = ""  # the source line at `location.own`


@dataclass(frozen=True, slots=True)
class TorchWarning(Record):
    """A warning or log message of torch while it compiled; torch emits most of them once per process."""

    text: str
    origin: str  # logger or warning category
    location: Location | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Trouble(Record):
    """A failure of dynx itself; the program was not affected."""

    what: str
    why: str
    count: int = 1
