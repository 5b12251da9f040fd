"""Records of the keys by which torch looks graphs up in its caches on disk, and of why two runs have different keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynx.records.location import CodeLine, Location
from dynx.records.record import OfCompile, Record
from dynx.records.shown import Shown


@dataclass(frozen=True, slots=True)
class KeySettings(Record):
    """The options of torch's configuration that are part of a cache key. `CacheKey.settings` refers to them by `digest`."""

    digest: str
    values: Mapping[str, str]  # "torch._inductor.config.max_autotune": "False"


@dataclass(frozen=True, slots=True)
class CacheKey(OfCompile, Record):
    """The key of one graph in the FX graph cache or the AOTAutograd cache, with its parts.

    `digest` is a hash of the bytes from which torch computes its key, so two keys are equal if their digests are.
    """

    cache: Literal["fx_graph", "aot_autograd"]
    digest: str
    generation: int
    id: str  # compile id, "0/1"
    location: Location | None  # first line of the function
    is_backward: bool
    directory: str  # of the caches
    settings: str  # digest of its `KeySettings`
    parts: Mapping[str, str] = field(default_factory=dict)  # "L['x'].dtype": "torch.float32"; long texts are cut, with a hash
    symbols: Mapping[str, str] = field(default_factory=dict)  # "s77": "L['x'].size()[0]", the first source if it has several
    graph: tuple[CodeLine, ...] = ()
    omitted: int = 0  # lines of the graph that were not saved
    fixed: Mapping[str, str] = field(default_factory=dict)  # "L['x'].size()[0]": "4", symbols that a line fixed to one value
    profiles: tuple[str, ...] = ()  # that the process began with: "profile.json" or "torch's profile"
    source: str | None = None  # hash of the text of the function


CauseKind = Literal[
    "new graph",
    "bypass",
    "entry",
    "system",
    "setting",
    "state",
    "input",
    "dynamic size",
    "symbol name",
    "runtime assert",
    "graph",
]


@dataclass(frozen=True, slots=True)
class CacheCause(Record):
    """One reason why graphs of the second run are not found in the caches that the first run filled.

    `count` is the number of graphs with this reason, `rule` the id of the rule whose advice applies, such as DX102, or None.
    """

    kind: CauseKind
    component: str  # "L['x'].dtype", "torch._inductor.config.max_autotune", "name of L['x'].size()[0]"
    before: str
    after: str
    location: Location | None  # the line, or the first line of the function
    advice: str
    rule: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class CacheDiff(Shown):
    """The result of `pgo.cachediff`: why graphs of the second run miss the caches that the first run filled.

    Its truth value is False if every graph of the second run was found in the caches, and none bypassed them.
    """

    causes: tuple[CacheCause, ...] = ()
    same: int = 0  # keys of the second run that the first has
    different: int = 0  # keys of the second run that the first does not have, and that were not found
    elsewhere: int = 0  # keys of the second run that the first does not have, but that were found
    problem: str | None = None  # why the runs cannot be compared

    def __bool__(self) -> bool:
        return bool(self.causes)

    def __iter__(self) -> Iterator[CacheCause]:
        return iter(self.causes)

    def __len__(self) -> int:
        return len(self.causes)
