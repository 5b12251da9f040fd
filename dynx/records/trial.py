"""Records of trials: runs of a program, each with one fix of a finding (a recompile, a graph break, …)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.fix import Fix
from dynx.records.location import Location
from dynx.records.record import Record

Outcome = Literal[
    "kept", "no effect", "costs more", "leads to another", "other output", "fails", "takes too long", "not needed"
]


@dataclass(frozen=True, slots=True)
class Events(Record):
    """The costs of one run: numbers of recompiles, graph breaks and uncompiled functions, and the seconds spent compiling."""

    recompiles: int
    graph_breaks: int
    gave_up: int  # functions that reached a recompile limit
    eager: int  # functions that run eagerly because of a graph break
    failed: int  # compilations that failed
    seconds: float  # spent compiling

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts of the run: all its numbers except the seconds."""
        return tuple(count for _, count in self._counts())

    def __str__(self) -> str:
        parts = (f"{count} {name.removesuffix('s') if count == 1 else name}" for name, count in self._counts() if count)
        return ", ".join(parts) or "nothing to fix"

    def to(self, after: Events) -> str:
        """Return the counts that change from this run to run `after`: `recompiles 4 → 1`; if none does, this run's counts."""
        pairs = zip(self._counts(), after._counts(), strict=True)
        parts = (f"{name} {old} → {new}" for (name, old), (_, new) in pairs if old != new)
        return ", ".join(parts) or str(self)

    def unchanged(self, after: Events) -> str:
        """Return nonzero counts of uncompiled functions (gave up, run eagerly, failed) if equal in `after`: `1 gave up`."""
        pairs = list(zip(self._counts(), after._counts(), strict=True))[2:]
        return ", ".join(f"{old} {name}" for (name, old), (_, new) in pairs if old and old == new)

    def _counts(self) -> tuple[tuple[str, int], ...]:
        return (
            ("recompiles", self.recompiles),
            ("graph breaks", self.graph_breaks),
            ("gave up", self.gave_up),
            ("run eagerly", self.eager),
            ("failed", self.failed),
        )


@dataclass(frozen=True, slots=True)
class Trial(Record):
    """A run of the program with one fix, compared with a run without this fix."""

    rule: str
    title: str  # of the finding
    location: Location
    fix: Fix
    outcome: Outcome
    before: Events
    after: Events | None = None  # None if the program did not end, or could not be changed
    same_output: bool | None = None  # standard output, exit code and requested values; None if not compared
    reason: str = ""  # what differs, or what was raised
    written_at: tuple[Location, ...] = ()  # the lines that the fix changes, as they were before; empty if it changes no file

    @property
    def is_kept(self) -> bool:
        """Whether the fix is kept: the finding is gone, nothing else costs more, and the program prints the same."""
        return self.outcome == "kept"

    @property
    def result(self) -> str:
        """The result of the trial in one line: `recompiles 4 → 1, same output`."""
        if self.is_kept and self.after is not None:
            return f"{self.before.to(self.after)}, same output"
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome
