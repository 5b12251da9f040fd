"""DX402: a graph bypasses AOTAutograd's cache on disk, but not the FX graph cache."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.bypasses import bypasses, finding_of
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

_ADVICE = "use plain torch operations or a custom_op"


def _find(run: RunRecords) -> Iterator[Finding]:
    for location, events in bypasses(run, "aot_autograd"):
        yield finding_of(run, RULE.id, location, events, _ADVICE)


RULE = RunRule(id="DX402", title="the autograd cache is bypassed", find=_find)
