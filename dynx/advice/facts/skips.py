"""Findings on code that runs uncaptured."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.cudagraphs import SkipKind
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def skips(run: RunRecords, kind: SkipKind, rule: str) -> Iterator[Finding]:
    """Yield a finding for each skip of one kind; its seconds are 0, because the cost is not measured."""
    for skip in run.cudagraph_skips:
        if skip.kind == kind and skip.location is not None:
            yield Finding(rule, skip.reason, skip.location, 0.0, (), skip.advice, skip.count)
