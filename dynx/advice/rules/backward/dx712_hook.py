"""Rule DX712: compiled autograd captures a backward pass again because a hook was registered or removed."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.advice.rules.backward._recaptures import recaptures
from dynx.records.backward import RecaptureReason
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

_CHECKPOINT = "torch/utils/checkpoint.py"


def _advice(reason: RecaptureReason) -> str:
    if reason.location is not None and reason.location.file.endswith(_CHECKPOINT):
        return "use activation checkpointing in every pass, or in none"
    if reason.subject.startswith("cpp_"):
        return "call retain_grad() on the same tensors in every pass, or in none"
    return "register the same hooks before every pass, from the first one on; let a hook that has nothing to do return None"


def _find(run: RunRecords) -> Iterator[Finding]:
    return recaptures(run, RULE.id, _advice, "hook")


RULE = RunRule(id="DX712", title="a backward pass is captured again for other hooks", find=_find, is_merged=False)
