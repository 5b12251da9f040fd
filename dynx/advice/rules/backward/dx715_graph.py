"""Rule DX715: compiled autograd captures a backward pass again because the autograd graph is another one."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.advice.rules.backward._recaptures import recaptures
from dynx.records.backward import RecaptureKind, RecaptureReason
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

_ADVICE: dict[RecaptureKind, str] = {
    "structure": "one capture for each path of the forward pass is expected; to avoid it, take the same path in every pass",
    "value": "one capture for each value is expected; to avoid it, pass the same value in every pass",
    "dtype": "one capture for each dtype is expected; to avoid it, compute in the same dtype in every pass",
    "frozen": "one capture for each set of tensors that require gradients is expected",
    "compiled": "avoid the recompile of the forward pass, of which there is a finding of its own",
    "request": "one capture for each kind of call is expected; to avoid it, call backward() or grad() alike in every pass",
    "unknown": "compare the two passes at the node that torch names: nothing that dynx can read differs",
}


_LOGS = "set TORCH_LOGS=compiled_autograd_verbose for torch's words; torch may then raise an internal error in another pass"


def _advice(reason: RecaptureReason) -> str:
    return _ADVICE[reason.kind] if reason.kind != "unknown" or reason.torch else _LOGS


def _find(run: RunRecords) -> Iterator[Finding]:
    return recaptures(run, RULE.id, _advice, *_ADVICE)


RULE = RunRule(id="DX715", title="a backward pass is captured again for another graph", find=_find, is_merged=False)
