"""Rule DX802: a full deque keeps the wrong items in compiled code."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.effects import OUTSIDE, evidence, lost_effects, maxlen_of
from dynx.advice.facts.names import spoken
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def _find(run: RunRecords) -> Iterator[Finding]:
    for frame, effect in lost_effects(run):
        if (maxlen := maxlen_of(effect)) is not None:
            late = f"which compiled code applies too late: it keeps the last {maxlen} items"
            title = f"{spoken(effect.source)} has maxlen={maxlen}, {late}"
            advice = f"use a list and cut it: items.append(item); del items[:-{maxlen}], {OUTSIDE}"
            yield Finding(RULE.id, title, effect.location or frame.location, 0.0, tuple(evidence(effect)), advice, wrong=True)


RULE = RunRule(id="DX802", title="a full deque keeps the wrong items in compiled code", find=_find)
