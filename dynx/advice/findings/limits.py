"""Findings for functions that reached a recompile limit; they include the findings for the recompiles that led to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dynx.advice.facts import fixes
from dynx.advice.findings import described, recompiles
from dynx.advice.findings.resumed import frame_of
from dynx.advice.findings.roots import OfCauses
from dynx.advice.rule import Cause
from dynx.advice.rules.limits.dx301_gave_up import RULE as GAVE_UP
from dynx.records.compile import GaveUp
from dynx.records.finding import Finding
from dynx.records.location import Location


def cause_of(gave_up: GaveUp, causes: tuple[Cause, ...]) -> Cause | None:
    """Return the cause of most recompiles of a function that reached a recompile limit; None if no rule applies to them."""
    frame = frame_of((gave_up.generation, gave_up.id))
    candidates = [cause for cause in causes if frame_of(cause.recompiles[0].key) == frame]
    return max(candidates, key=lambda cause: len(cause.recompiles), default=None)


def find_all(gave_up: Iterable[GaveUp], causes: tuple[Cause, ...]) -> tuple[tuple[OfCauses, ...], set[int]]:
    """Return the findings for functions at a recompile limit, with their causes, and the `id()` of these causes.

    If a graph break split a function and one change recompiled several of its parts, the parts share one finding.
    """
    findings: list[OfCauses] = []
    included: set[int] = set()
    of_changes: dict[object, list[tuple[GaveUp, Cause]]] = {}
    for each in gave_up:
        cause = cause_of(each, causes)
        if cause is None:
            findings.append(OfCauses(_without_cause(each), ()))
        else:
            included.add(id(cause))
            of_changes.setdefault(recompiles.change_of(cause), []).append((each, replace(cause, allowed=each.allowed)))
    for change, pairs in of_changes.items():
        first, _ = min(pairs, key=lambda pair: pair[1].after is not None)
        parts = (cause for cause in causes if recompiles.change_of(cause) == change and cause.after is not None)
        others = [cause for cause in parts if id(cause) not in included]
        included.update(map(id, others))  # parts of the function that did not reach the limit
        all_causes = [*(cause for _, cause in pairs), *others]
        findings.append(OfCauses(_find(first, all_causes), all_causes))
    return tuple(findings), included


def _consequence(gave_up: GaveUp) -> str:
    if gave_up.fatal:
        return "fullgraph=True raises FailOnRecompileLimitHit for calls that match no cache entry"
    return "from then on, calls that match no cache entry run eagerly"


def _without_cause(gave_up: GaveUp) -> Finding:
    limit = f"{gave_up.limit} = {gave_up.allowed}"
    title = f"fullgraph=True fails: reached {limit}" if gave_up.fatal else f"torch gave up compiling it: reached {limit}"
    advice = "see the recompiles of this function below"
    evidence = (_consequence(gave_up),)
    return Finding(GAVE_UP.id, title, gave_up.location, 0.0, evidence, advice, called_from=_caller(gave_up))


def _find(gave_up: GaveUp, causes: Sequence[Cause]) -> Finding:
    """Return the finding for a function that reached a recompile limit, at the line and with the advice of its main cause."""
    cause = min(causes, key=lambda cause: cause.after is not None)
    of_cause = recompiles.find_joined(causes)
    subject, last = described.subject_of(cause.last), cause.last
    times = f"{gave_up.allowed} compiles" if gave_up.allowed is not None else "too many compiles"
    function = gave_up.location.own.function
    elsewhere = f"{function}: " if function != of_cause.location.own.function else ""
    ends = f"{elsewhere}fullgraph=True fails" if gave_up.fatal else f"{elsewhere}gave up"
    values = f"{described.value_of(last, last.expected)}, now {described.value_of(last, last.got, 'another value')}"
    change = f"{subject} {values if last.expected is not None else described.changes(cause)}"
    title = f"{ends} after {times} ({cause.rule.id}): {change}"
    if cause.rule.id == "DX115":
        title = f"{title}; it is shared by instances of {last.other_instance}"
    caller = _caller(gave_up)
    advice = recompiles.advice_on(recompiles.main_cause(causes))
    is_solved = any(what_if.helps for what_if in of_cause.what_ifs)
    raises = (gave_up.fatal or advice.is_expected) and not is_solved
    higher = [fixes.limit(gave_up.limit, gave_up.allowed)] if raises and gave_up.allowed is not None else []
    return replace(
        of_cause.advised([*of_cause.alternatives, *higher]),
        rule=GAVE_UP.id,
        title=f"{title}{recompiles.fixed_by(cause)}{recompiles.split_by(causes)}",
        evidence=(
            f"reached {gave_up.limit} = {gave_up.allowed}: {_consequence(gave_up)}",
            *([f"at the call from {caller}"] if caller is not None else []),
            f"cause: {cause.rule.id}, {cause.rule.title}",
            *of_cause.evidence,
        ),
        called_from=of_cause.called_from or caller,
        fixes=fixes.of_limit(gave_up, causes, is_raised=raises),
    )


def _caller(gave_up: GaveUp) -> Location | None:
    return gave_up.called_from.own if gave_up.called_from is not None else None
