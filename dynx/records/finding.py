"""Record of a finding: advice of a rule (such as DX102) for a program that was run, and the compile time it would save."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dynx.records.fix import Fix
from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.trial import Trial
from dynx.records.what_if import WhatIf


@dataclass(frozen=True, slots=True)
class Alternative(Record):
    """One way to follow the advice of a finding."""

    text: str
    does: str = ""  # the `Fix.name` of the fixes that do what the text says; empty if only the user can do it
    proof: str = ""  # what was seen when it was tried: "proven: 2 compiles, not 9"

    def __str__(self) -> str:
        return f"{self.text} ({self.proof})" if self.proof else self.text


def joined(alternatives: Iterable[Alternative]) -> str:
    """Return alternatives as one text of advice."""
    return "; or ".join(map(str, alternatives))


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """Advice of a rule on one line of the program, and the compile time that is lost without it.

    `seconds` is the lost wall time (0 if not measured): of recompiles, of resume functions and discarded attempts after
    graph breaks, of compilations that failed or were given up, and of the backend in findings about caches on disk.
    """

    rule: str
    title: str  # "gave up after 8 recompiles: self.step 7, now 8"
    location: Location
    seconds: float
    evidence: tuple[str, ...]
    advice: str
    count: int = 1
    called_from: Location | None = None  # if an argument changes: the line that called the function
    wrong: bool = False  # the compiled code leaves other values than eager code
    fixes: tuple[Fix, ...] = ()  # changes that `dynx fix` can try, the smallest first
    trials: tuple[Trial, ...] = ()  # of `dynx run --try`
    what_ifs: tuple[WhatIf, ...] = ()  # fixes that were tried while the program ran, the best first
    uncompiled_seconds: float = 0.0  # that functions ran uncompiled because of it, by samples
    uncompiled_share: float = 0.0  # of the time since torch gave them up, from 0 to 1
    alternatives: tuple[Alternative, ...] = ()  # of the advice, the best first; empty if the advice has no fixes

    def advised(self, alternatives: Iterable[Alternative]) -> Finding:
        """Return this finding with other advice."""
        kept = tuple(alternatives)
        return replace(self, alternatives=kept, advice=joined(kept))

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key: findings about wrong results first, then the most expensive findings."""
        return not self.wrong, -self.seconds
