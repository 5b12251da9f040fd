"""What the guards of a call cost."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.cache import GuardInfo
from dynx.records.codec import named
from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown
from dynx.records.tree import Tree


@dataclass(frozen=True, slots=True)
class CostNode(Tree, Record):
    """A guarded value, and what checking it takes, in nanoseconds.

    The guards of one value are timed together.
    """

    source: str  # "L['self'].weight"
    type: str
    ns: float  # with everything reached through it
    own_ns: float  # reaching it, and its own guards
    guards: tuple[GuardInfo, ...] = ()
    children: tuple[CostNode, ...] = ()

    @property
    def ns_per_guard(self) -> float:
        """The value's own time, divided among its guards."""
        return self.own_ns / max(1, len(self.guards))


@dataclass(frozen=True, slots=True)
class FrameCost(Record):
    """The guards of one frame of the call: of the function, or of its rest after a graph break.

    `ns` is what torch takes to check them all; the parts in `tree` are timed on copies, in which every guard is evaluated.
    """

    id: str  # compile id of the version that ran, "0/1"
    location: Location
    ns: float
    tree: CostNode
    times: int = 1  # in one call
    resumes: int | None = None  # for the rest of a function: the line of the graph break

    @property
    def size(self) -> int:
        """The number of guards."""
        return sum(len(node.guards) for _, node in self.tree.walk())


@dataclass(frozen=True, slots=True)
class GuardSetting(Record):
    """A way to have the guards checked, and what it would cost.

    It is safe when it misses nothing that the guards as they are would notice.
    """

    name: str
    ns: float  # of one call, all frames
    guards: int  # that are kept
    misses: tuple[str, ...] = ()  # changes that go unnoticed
    verified: str = ""  # what stands behind that
    how: str = ""  # what to write to have it

    @property
    def is_safe(self) -> bool:
        return not self.misses


@named("guard_costs")
@dataclass(frozen=True, slots=True)
class GuardCosts(Shown):
    """What checking guards costs in one call."""

    location: Location
    call_ns: float  # of the whole call
    frames: tuple[FrameCost, ...]
    settings: tuple[GuardSetting, ...]  # the first is the one in use

    @property
    def ns(self) -> float:
        """The nanoseconds of all guards in one call."""
        return sum(each.ns * each.times for each in self.frames)

    @property
    def share(self) -> float:
        """The guards' part of the call, from 0 to 1."""
        return min(1.0, self.ns / self.call_ns) if self.call_ns else 0.0

    @property
    def advice(self) -> GuardSetting:
        """The cheapest setting that is safe; the one in use where none is cheaper."""
        return min((each for each in self.settings if each.is_safe), key=lambda each: each.ns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.ns / 1000:.1f} us of {self.call_ns / 1000:.1f} us at {self.location}>"
