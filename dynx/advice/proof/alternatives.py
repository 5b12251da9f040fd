"""Alternatives of advice, compared with the fixes that were tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dynx.records.finding import Alternative
from dynx.records.fix import Fix


def without(advice: Iterable[Alternative], fixes: Collection[Fix]) -> list[Alternative]:
    """Return the alternatives of advice that do not say to apply one of the fixes."""
    names = {fix.name for fix in fixes}
    return [each for each in advice if each.does not in names]


def naming(advice: Iterable[Alternative], fix: Fix) -> Alternative | None:
    """Return the alternative that says to apply a fix; None if there is none."""
    return next((each for each in advice if each.does == fix.name), None)
