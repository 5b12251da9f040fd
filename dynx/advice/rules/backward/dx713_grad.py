"""Rule DX713: compiled autograd captures a backward pass again because `.grad` was None before, or is None now."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.advice.rules.backward._recaptures import recaptures
from dynx.records.backward import RecaptureReason
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def _advice(reason: RecaptureReason) -> str:
    return (
        "call zero_grad() before each backward(), which sets .grad to None; "
        "where gradients accumulate, or are zeroed in place, one more capture is expected"
    )


def _find(run: RunRecords) -> Iterator[Finding]:
    return recaptures(run, RULE.id, _advice, "grad")


RULE = RunRule(
    id="DX713", title="a backward pass is captured again where a parameter has a gradient", find=_find, is_merged=False
)
