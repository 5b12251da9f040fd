"""Rule DX302: a compilation fails with an exception."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dynx.advice.facts import libraries
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak
from dynx.records.run_records import RunRecords

_TRY = 'try backend="aot_eager", then "eager": if one of them works, report the error to the backend'
_WITHOUT: dict[tuple[str, str | None], str] = {  # by advice and backend: the advice without that backend
    (_TRY, "aot_eager"): 'try backend="eager": if it works, report the error to PyTorch'
}
# a regular expression for torch's exception, what happened, and the advice
_FAILURES = (
    (
        r"ConstraintViolationError",
        "a size was marked dynamic, but this line needs one value of it",
        "use maybe_mark_dynamic, or do not mark it: this line fixes the size",
    ),
    (
        r"GuardOnDataDependentSymNode|UserError",
        "this line needs a value that depends on a tensor's data",
        "compute it outside the compiled function, or keep it a tensor; torch._check(...) can state its bounds",
    ),
    (
        r"TorchRuntimeError.*(?:no fake impl|register_fake|meta kernel)",
        "a custom operator has no fake implementation",
        "register one with torch.library.register_fake: it computes the shape and dtype of the output",
    ),
    (
        r"UncapturedHigherOrderOpError",
        "a function passed to this operator has side effects or a graph break",
        "let it only compute and return tensors: change attributes and print outside, after the call",
    ),
    (
        r"TorchRuntimeError",
        "an operator does not accept these tensors",
        "run this line without torch.compile: if it fails there too, correct the shapes or dtypes",
    ),
    (r"BackendCompilerFailed", "the backend raised an exception", _TRY),
    (
        r"InternalTorchDynamoError",
        "Dynamo raised an internal error",
        "move this line out of the compiled function, and report it to PyTorch",
    ),
)
_CHANGED_ATTRIBUTE = re.compile(r"Attribute '\w+' .*? was changed from .*? to \S+")
_WITH_RECOMPILE = ("FailOnRecompileLimitHit", "RecompileError", "fail_on_recompile")  # the recompile has a finding
_UNKNOWN_FAILURE = "move this line out of the compiled function; torch's message is in the evidence"


def _find(run: RunRecords) -> Iterable[Finding]:
    """Return a finding for each line at which a compilation failed, unless another finding explains the failure."""
    explained = {key for found in run.graph_breaks if found.fatal and found.rule is not None for key in found.compiles}
    fatal = {key: found for found in run.graph_breaks if found.fatal for key in found.compiles}
    merged: dict[tuple[str, int, str], Finding] = {}
    for compile in run.compiles:
        reason = compile.reason or "torch gives no reason"
        if compile.outcome != "failed" or compile.key in explained or reason.startswith(_WITH_RECOMPILE):
            continue
        graph_break = fatal.get(compile.key)
        title, advice = _failure(reason, graph_break)
        if changed := _CHANGED_ATTRIBUTE.search(reason):
            title = f"{title}: {changed[0]}"
        location = compile.failed_at or (graph_break.location if graph_break is not None else compile.location)
        advice = str(libraries.advice_on_failure(location) or _WITHOUT.get((advice, compile.backend)) or advice)
        code = f": {compile.code or reason.partition(' raised: ')[2]}".removesuffix(": ")
        evidence = (reason, *((graph_break.explanation, *graph_break.hints) if graph_break is not None else ()))
        finding = Finding(
            RULE.id,
            f"{title}{code}",
            location,
            compile.seconds,
            tuple(filter(None, evidence)),
            advice,
            called_from=compile.called_from.own if compile.called_from is not None else None,
        )
        key = (location.file, location.line, title)
        found = merged.get(key)
        merged[key] = (
            replace(found, seconds=found.seconds + finding.seconds, count=found.count + 1) if found is not None else finding
        )
    return merged.values()


def _failure(reason: str, graph_break: GraphBreak | None) -> tuple[str, str]:
    """Return title and advice for a failed compilation, from its exception ("class: message") and fatal graph break, if any."""
    for pattern, what, advice in _FAILURES:
        if re.match(pattern, reason):
            return f"{reason.partition(':')[0]}: {what}", advice
    if graph_break is not None:
        hint = graph_break.hints[0].rstrip(".") if graph_break.hints else "move this line out of the compiled function"
        if graph_break.kind == "Observed exception":
            return f"fullgraph=True fails: {graph_break.reason}", "the function itself raises here: catch the exception outside"
        return f"fullgraph=True fails: {graph_break.reason}", f"{hint}; or drop fullgraph=True, which allows a graph break here"
    return f"the compilation failed: {reason}", _UNKNOWN_FAILURE


RULE = RunRule(id="DX302", title="a compilation fails", find=_find, is_merged=False)
