"""Record of the result of `dynx fix`: the runs in which fixes were tried, and the diff of the fixes that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dynx.records.finding import Finding
from dynx.records.record import IN_PROCESS
from dynx.records.shown import Shown
from dynx.records.trial import Events, Trial


@dataclass(frozen=True, slots=True)
class FixReport(Shown):
    """The result of `dynx fix`: one trial (a run of the program) per fix, and the diff of the fixes that are kept."""

    command: str
    before: Events
    after: Events  # with all fixes that are kept
    trials: tuple[Trial, ...]
    found: tuple[Finding, ...] = ()  # in the unchanged program
    remaining: tuple[Finding, ...] = ()  # with all fixes that are kept
    diff: str = ""  # unified; empty if nothing is kept
    runs: int = 0  # how often the program was run
    seconds: float = 0.0  # of all runs
    notes: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, metadata=IN_PROCESS)  # the changed files, by absolute path
    began: float = field(default=0.0, metadata=IN_PROCESS)  # time.time() of the first run
