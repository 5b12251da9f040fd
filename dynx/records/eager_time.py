"""Record of the time that a function ran uncompiled after torch gave it up, or after a graph break where it cannot resume."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.location import Location
from dynx.records.record import Record

FEWEST_SAMPLES = 10  # fewer say little about a share


@dataclass(frozen=True, slots=True)
class EagerTime(Record):
    """How long a function ran uncompiled, by samples of the stacks of all threads.

    `seconds` is the time in which the function, or code that it calls, ran uncompiled; compilations do not count.
    `of_seconds` is the time from the moment at which torch gave it up.
    """

    location: Location  # first line of the function
    seconds: float
    of_seconds: float
    samples: int

    @property
    def share(self) -> float:
        """The part of the time that the function ran uncompiled, from 0 to 1; more if several threads did at once."""
        return self.seconds / self.of_seconds if self.of_seconds > 0 else 0.0
