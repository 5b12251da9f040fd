"""Records of the differences between two runs of a program: totals, and causes of recompiles, graph breaks and other costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown

Unit = Literal["count", "seconds", "bytes"]
CauseKind = Literal["failed", "wrong values", "gave up", "runs eagerly", "recompile", "graph break", "not captured"]
Verdict = Literal["gone", "fewer", "same", "more", "new"]


@dataclass(frozen=True, slots=True)
class RunTotal(Record):
    """One total, such as the number of recompiles or the seconds of compiling, in each of two runs."""

    name: str  # "recompiles", "seconds in Dynamo"
    before: float
    after: float
    unit: Unit = "count"
    is_cost: bool = True  # whether less of it is better


@dataclass(frozen=True, slots=True)
class CauseChange(Record):
    """How often one cause of a recompile, graph break or other cost occurred in each of two runs.

    Causes of the two runs are matched by text and by function or source text, not by line number, since edits move lines.
    """

    kind: CauseKind
    function: str  # of the later run, if the cause is in both
    cause: str  # "self.step", "print()", "data-dependent branching"
    before: int
    after: int
    seconds_before: float = 0.0
    seconds_after: float = 0.0
    rule: str | None = None
    location: Location | None = None  # in the later run, if the cause is in it

    @property
    def verdict(self) -> Verdict:
        """Whether the cause is new or gone in the later run, or occurs there more often, less often, or as often."""
        if not self.before:
            return "new"
        if not self.after:
            return "gone"
        return "same" if self.before == self.after else "more" if self.after > self.before else "fewer"


@dataclass(frozen=True, slots=True)
class RunDiff(Shown):
    """The result of `Run.diff`: totals of two runs, and how often each cause of a recompile, graph break, … occurs per run."""

    amounts: tuple[RunTotal, ...]
    causes: tuple[CauseChange, ...]  # worse ones first, then by seconds
    notes: tuple[str, ...] = ()  # why the runs may not be comparable

    @property
    def worse(self) -> tuple[CauseChange, ...]:
        """The causes that are only in the later run, or occur more often in it."""
        return tuple(cause for cause in self.causes if cause.verdict in ("new", "more"))

    @property
    def better(self) -> tuple[CauseChange, ...]:
        """The causes that are only in the earlier run, or occur less often in the later run."""
        return tuple(cause for cause in self.causes if cause.verdict in ("gone", "fewer"))

    @property
    def slower(self) -> float:
        """The compile time of the later run divided by the compile time of the earlier run; 1.0 if neither run compiled."""
        (compiling,) = (amount for amount in self.amounts if amount.name == COMPILING)
        if not compiling.before:
            return 1.0 if not compiling.after else float("inf")
        return compiling.after / compiling.before


COMPILING = "compiling"
