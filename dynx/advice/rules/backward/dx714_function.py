"""Rule DX714: compiled autograd captures a backward pass again for another class of a custom `autograd.Function`."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.advice.rules.backward._recaptures import recaptures
from dynx.records.backward import RecaptureReason
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

_OF_TORCH = "torch._functorch."  # the class that torch makes where the backend runs an `autograd.Function` of compiled code


def _advice(reason: RecaptureReason) -> str:
    if reason.before.startswith(_OF_TORCH):
        return (
            'compile the function that calls autograd.Function with backend="aot_eager" or "inductor": backend="eager" makes a '
            "class for it in each call; or call it outside the compiled function"
        )
    if reason.after == reason.before:
        return f"define {reason.before.rpartition('.')[2]} once: its class statement runs again in each pass"
    return "one capture for each autograd.Function is expected"


def _find(run: RunRecords) -> Iterator[Finding]:
    return recaptures(run, RULE.id, _advice, "function")


RULE = RunRule(id="DX714", title="a backward pass is captured again for another autograd.Function", find=_find, is_merged=False)
