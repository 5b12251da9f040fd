"""What `dynx fix` found: its trials, and the changes that are kept as a diff."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.finding import Finding
from dynx.records.shown import Shown
from dynx.records.trial import Events, Trial


@dataclass(frozen=True, slots=True)
class FixReport(Shown):
    """What `dynx fix` prints: the trials, and the changes that are kept as a diff."""

    command: str
    before: Events
    after: Events  # with all fixes that are kept
    trials: tuple[Trial, ...]
    found: tuple[Finding, ...] = ()  # of the program as it is
    remaining: tuple[Finding, ...] = ()  # with all fixes that are kept
    diff: str = ""  # unified; empty if nothing is kept
    runs: int = 0  # of the program, all in all
    seconds: float = 0.0  # of all runs
    notes: tuple[str, ...] = ()
