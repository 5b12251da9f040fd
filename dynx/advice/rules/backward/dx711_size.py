"""Rule DX711: compiled autograd captures a backward pass again because a size has changed."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.advice.rules.backward._recaptures import recaptures
from dynx.records.backward import RecaptureReason
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def _advice(reason: RecaptureReason) -> str:
    return (
        "one more capture for each size that changes is expected: it makes the size dynamic; to avoid it, dynamic=True where "
        "compiled autograd is enabled: autograd.capture(dynamic=True), or torch.compile(dynamic=True) under the setting"
    )


def _find(run: RunRecords) -> Iterator[Finding]:
    return recaptures(run, RULE.id, _advice, "shape")


RULE = RunRule(id="DX711", title="a backward pass is captured again for another size", find=_find, is_merged=False)
