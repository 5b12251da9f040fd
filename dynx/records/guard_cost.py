"""Records of the time that checking guards takes in one call of a compiled function."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.cache import GuardInfo
from dynx.records.codec import named
from dynx.records.location import Location
from dynx.records.record import Record, Tree
from dynx.records.shown import Shown


@dataclass(frozen=True, slots=True)
class CostNode(Tree, Record):
    """A node of the guard tree (a guarded value), and the nanoseconds that checking it takes.

    The guards of one value are timed together.
    """

    source: str  # "L['self'].weight"
    type: str
    ns: float  # including its children
    own_ns: float  # reaching it and checking its own guards
    guards: tuple[GuardInfo, ...] = ()
    children: tuple[CostNode, ...] = ()


@dataclass(frozen=True, slots=True)
class FrameCost(Record):
    """How long checking the guards of one frame takes: the frame of the called function, or of a resume function.

    `ns` is the time that torch takes to check all guards of the frame. The nodes in `tree` are timed on copies of the guards,
    in which torch skips no guard.
    """

    id: str  # compile id of the entry that ran, "0/1"
    location: Location
    ns: float
    tree: CostNode
    times: int = 1  # in one call
    resumes: int | None = None  # for a resume function: the line of its graph break

    @property
    def size(self) -> int:
        """The number of guards of the frame."""
        return sum(len(node.guards) for _, node in self.tree.walk())


@dataclass(frozen=True, slots=True)
class GuardSetting(Record):
    """One way to configure guard checks, such as dropping some guards, with the time per call and the changes it would miss.

    A setting is safe if it misses no change that the guards in use would detect.
    """

    name: str
    ns: float  # of one call, all frames
    guards: int  # number of guards that are kept
    misses: tuple[str, ...] = ()  # changes that it would not detect
    verified: str = ""  # how that was verified
    how: str = ""  # the code that selects it

    @property
    def is_safe(self) -> bool:
        """Whether the setting detects every change that the guards in use detect."""
        return not self.misses


@named("guard_costs")
@dataclass(frozen=True, slots=True)
class GuardCosts(Shown):
    """How long checking guards takes in one call of a compiled function, with the settings in use and with other settings."""

    location: Location
    call_ns: float  # of the whole call
    frames: tuple[FrameCost, ...]
    settings: tuple[GuardSetting, ...]  # the first is the setting in use

    @property
    def ns(self) -> float:
        """The nanoseconds that checking all guards takes in one call."""
        return sum(frame.ns * frame.times for frame in self.frames)

    @property
    def share(self) -> float:
        """The fraction of the call's duration that checking guards takes, from 0 to 1."""
        return min(1.0, self.ns / self.call_ns) if self.call_ns else 0.0

    @property
    def advice(self) -> GuardSetting:
        """The fastest setting that misses no change (`is_safe`); the setting in use if no other safe setting is faster."""
        return min((setting for setting in self.settings if setting.is_safe), key=lambda setting: setting.ns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.ns / 1000:.1f} us of {self.call_ns / 1000:.1f} us at {self.location}>"
