"""Advice rules DX3xx: functions that reached a recompile limit, and compilations that failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dynx.advice import fixes, libraries, recompiles
from dynx.advice.breaks.resumed import frame_of
from dynx.advice.rule import Cause, Rule
from dynx.records.compile import Compile, GaveUp
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location

GAVE_UP = Rule("DX301", "too many recompiles: runs eagerly")
FAILED = Rule("DX302", "a compilation fails")
RULES = (GAVE_UP, FAILED)


def cause_of(gave_up: GaveUp, causes: tuple[Cause, ...]) -> Cause | None:
    """Return the cause of most recompiles of a function that reached a recompile limit; None if no rule applies to them."""
    frame = frame_of((gave_up.generation, gave_up.id))
    candidates = [cause for cause in causes if frame_of(cause.recompiles[0].key) == frame]
    return max(candidates, key=lambda cause: len(cause.recompiles), default=None)


def find_all(gave_up: Iterable[GaveUp], causes: tuple[Cause, ...]) -> tuple[tuple[Finding, ...], set[int]]:
    """Return the findings for functions at a recompile limit, and the ids of the causes that they include.

    If a graph break split a function and one change recompiled several of its parts, they are one finding.
    """
    findings: list[Finding] = []
    included: set[int] = set()
    of_changes: dict[object, list[tuple[GaveUp, Cause]]] = {}
    for each in gave_up:
        cause = cause_of(each, causes)
        if cause is None:
            findings.append(_without_cause(each))
        else:
            included.add(id(cause))
            of_changes.setdefault(recompiles.change_of(cause), []).append((each, replace(cause, allowed=each.allowed)))
    for change, pairs in of_changes.items():
        first, _ = min(pairs, key=lambda pair: pair[1].after is not None)
        others = [
            cause
            for cause in causes
            if recompiles.change_of(cause) == change and cause.after is not None and id(cause) not in included
        ]
        included.update(map(id, others))  # parts of the function that did not reach the limit
        findings.append(_find(first, [*(cause for _, cause in pairs), *others]))
    return tuple(findings), included


def _consequence(gave_up: GaveUp) -> str:
    if gave_up.fatal:
        return "fullgraph=True raises FailOnRecompileLimitHit for calls that match no cache entry"
    return "from then on, calls that match no cache entry run eagerly"


def _without_cause(gave_up: GaveUp) -> Finding:
    limit = f"{gave_up.limit} = {gave_up.allowed}"
    title = f"fullgraph=True fails: reached {limit}" if gave_up.fatal else f"torch gave up compiling it: reached {limit}"
    advice = "see the recompiles of this function below"
    return Finding(
        GAVE_UP.id,
        title,
        gave_up.location,
        0.0,
        (_consequence(gave_up),),
        advice,
        called_from=_caller(gave_up),
    )


def _find(gave_up: GaveUp, causes: Sequence[Cause]) -> Finding:
    """Return the finding for a function that reached a recompile limit, with the location and the advice of its main cause."""
    cause = min(causes, key=lambda cause: cause.after is not None)
    of_cause = recompiles.find_joined(causes)
    subject, last = recompiles.subject_of(cause.last), cause.last
    times = f"{gave_up.allowed} compiles" if gave_up.allowed is not None else "too many compiles"
    function = gave_up.location.own.function
    elsewhere = f"{function}: " if function != of_cause.location.own.function else ""
    ends = f"{elsewhere}fullgraph=True fails" if gave_up.fatal else f"{elsewhere}gave up"
    values = f"{recompiles.value_of(last, last.expected)}, now {recompiles.value_of(last, last.got, 'another value')}"
    change = f"{subject} {values if last.expected is not None else recompiles.changes(cause)}"
    title = f"{ends} after {times} ({cause.rule.id}): {change}"
    if cause.rule.id == "DX115":
        title = f"{title}; it is shared by instances of {last.other_instance}"
    caller = _caller(gave_up)
    advice = _with_limit(of_cause.advice, gave_up)
    return replace(
        of_cause,
        rule=GAVE_UP.id,
        title=f"{title}{recompiles.fixed_by(cause)}{recompiles.split_by(causes)}",
        evidence=(
            f"reached {gave_up.limit} = {gave_up.allowed}: {_consequence(gave_up)}",
            *([f"at the call from {caller}"] if caller is not None else []),
            f"cause: {cause.rule.id}, {cause.rule.title}",
            *of_cause.evidence,
        ),
        advice=advice,
        called_from=of_cause.called_from or caller,
        fixes=fixes.of_limit(gave_up, causes, advice),
    )


def _with_limit(advice: str, gave_up: GaveUp) -> str:
    if "recompile_limit" in advice or not (gave_up.fatal or "is expected" in advice):
        return advice
    return f"{advice}; or raise torch._dynamo.config.{gave_up.limit} above {gave_up.allowed}"


def _caller(gave_up: GaveUp) -> Location | None:
    return gave_up.called_from.own if gave_up.called_from is not None else None


# by the class of torch's exception: what happened, and what to do
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
    (
        r"BackendCompilerFailed",
        "the backend raised an exception",
        'try backend="aot_eager", then "eager": if one of them works, report the error to the backend',
    ),
    (
        r"InternalTorchDynamoError",
        "Dynamo raised an internal error",
        "move this line out of the compiled function, and report it to PyTorch",
    ),
)
_CHANGED_ATTRIBUTE = re.compile(r"Attribute '\w+' .*? was changed from .*? to \S+")
_WITH_RECOMPILE = ("FailOnRecompileLimitHit", "RecompileError", "fail_on_recompile")  # the recompile has a finding
_UNKNOWN_FAILURE = "move this line out of the compiled function; torch's message is in the evidence"


def find_failures(compiles: Iterable[Compile], breaks: Iterable[GraphBreak]) -> tuple[Finding, ...]:
    """Return a finding for each line at which a compilation failed, unless another finding has the reason."""
    explained = {key for found in breaks if found.fatal and found.rule is not None for key in found.compiles}
    fatal = {key: found for found in breaks if found.fatal for key in found.compiles}
    merged: dict[tuple[str, int, str], Finding] = {}
    for compile in compiles:
        reason = compile.reason or "torch gives no reason"
        if compile.outcome != "failed" or compile.key in explained or reason.startswith(_WITH_RECOMPILE):
            continue
        graph_break = fatal.get(compile.key)
        title, advice = _failure(reason, graph_break)
        if changed := _CHANGED_ATTRIBUTE.search(reason):
            title = f"{title}: {changed[0]}"
        location = compile.failed_at or (graph_break.location if graph_break is not None else compile.location)
        advice = libraries.advice_on_failure(location) or advice
        code = f": {compile.code or reason.partition(' raised: ')[2]}".removesuffix(": ")
        evidence = (reason, *((graph_break.explanation, *graph_break.hints) if graph_break is not None else ()))
        finding = Finding(
            FAILED.id,
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
    return tuple(merged.values())


def _failure(reason: str, graph_break: GraphBreak | None) -> tuple[str, str]:
    """Return what happened and what to do for the reason of a failed compilation: an exception's class and message."""
    for pattern, what, advice in _FAILURES:
        if re.match(pattern, reason):
            return f"{reason.partition(':')[0]}: {what}", advice
    if graph_break is not None:
        hint = graph_break.hints[0].rstrip(".") if graph_break.hints else "move this line out of the compiled function"
        if graph_break.kind == "Observed exception":
            return f"fullgraph=True fails: {graph_break.reason}", "the function itself raises here: catch the exception outside"
        return f"fullgraph=True fails: {graph_break.reason}", f"{hint}; or drop fullgraph=True, which allows a graph break here"
    return f"the compilation failed: {reason}", _UNKNOWN_FAILURE
