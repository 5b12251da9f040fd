"""What a user should change."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.location import Location
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """One piece of advice, with what it costs not to follow it.

    `seconds` is the wall time lost: of recompiles and of compiles of the rest of a function after a break, with their
    discarded attempts. A first compile is never lost.
    """

    rule: str
    title: str  # "gave up after 8 recompiles: self.step 7, now 8"
    location: Location
    seconds: float
    evidence: tuple[str, ...]
    advice: str
    count: int = 1
