"""DX401: a graph bypasses the FX graph cache, so that its compiled kernels are not cached on disk."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.bypasses import bypasses, finding_of
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

_ADVICE = "implement uuid() in the custom pass, or remove what has no cache key"


def _find(run: RunRecords) -> Iterator[Finding]:
    for location, events in bypasses(run, "fx_graph"):
        yield finding_of(run, RULE.id, location, events, _ADVICE)


RULE = RunRule(id="DX401", title="the compiled kernels are not cached on disk", find=_find)
