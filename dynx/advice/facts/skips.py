"""Findings on code that `dynx.cudagraphs` runs without capturing it in a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.cudagraphs import SkipKind
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def skips(run: RunRecords, kind: SkipKind, rule: str) -> Iterator[Finding]:
    """Yield a finding for each `Skip` of this kind: code not captured in a CUDA graph. Its seconds are 0 (not measured)."""
    for skip in run.cudagraph_skips:
        if skip.kind == kind and skip.location is not None:
            yield Finding(rule, skip.reason, skip.location, 0.0, (), skip.advice, skip.count)
