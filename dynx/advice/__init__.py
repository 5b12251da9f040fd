"""Rules: pure functions from what happened to what to change. One file per family, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynx.records.finding import Finding

if TYPE_CHECKING:
    from dynx.records.run import Run

__all__ = ["advise"]


def advise(run: Run) -> tuple[Finding, ...]:
    """Give the findings of a run, most expensive first."""
    return ()
