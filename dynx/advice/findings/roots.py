"""Find recompiles that a graph break multiplies: they are no findings of their own if a fix of the graph break is proven.

A graph break splits functions off: the part after it, and each function between the compiled one and the line of the break.
They are compiled and recompiled on their own: for the same sizes, for the values that the break computes, for each instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dynx.advice.facts.reasons import is_result
from dynx.advice.rule import Cause
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak

_OWN = ("module", "global", "optimizer", "object")  # holders of values that a graph break does not compute


class OfCauses(NamedTuple):
    """A finding about recompiles, and their causes."""

    finding: Finding
    causes: Sequence[Cause]


class OfBreaks(NamedTuple):
    """A finding about graph breaks, and the graph breaks."""

    finding: Finding
    breaks: Sequence[GraphBreak]


def with_consequences(of_breaks: Iterable[OfBreaks], of_causes: Iterable[OfCauses]) -> list[Finding]:
    """Return all findings; those about functions that a graph break splits off are added to its finding, if a fix is proven."""
    roots = list(of_breaks)
    removable = [
        (number, graph_break) for number, found in enumerate(roots) if _is_removed(found) for graph_break in found.breaks
    ]
    findings: list[Finding] = []
    follow: dict[int, list[OfCauses]] = {}
    for each in of_causes:
        root = _root(each.causes, removable)
        if root is None:
            findings.append(each.finding)
        else:
            follow.setdefault(root, []).append(each)
    return [*(_joined(found.finding, follow.get(number, ())) for number, found in enumerate(roots)), *findings]


def _is_removed(found: OfBreaks) -> bool:
    return any(what_if.outcome == "removes" for what_if in found.finding.what_ifs)


def _root(causes: Sequence[Cause], removable: Sequence[tuple[int, GraphBreak]]) -> int | None:
    """Return the number of the first graph break that splits a recompiled function off; None if another function recompiles."""
    numbers = []
    for cause in causes:
        is_own = cause.first.holder in _OWN and not is_result(cause)
        if is_own and cause.first.other_instance is None and cause.first.kind != "other":
            return None  # such as a list of the model that grows: without the graph break, another function recompiles for it
        if _is_chosen(cause) or (cause.fixed is not None and not is_result(cause)):
            return None  # a line that needs the exact size of an argument needs it without the graph break too
        number = next((number for number, graph_break in removable if graph_break in (cause.after, cause.apart)), None)
        if number is None:
            return None
        numbers.append(number)
    return min(numbers, default=None)


def _is_chosen(cause: Cause) -> bool:
    """Return whether the program chooses what changed, such as a string: a graph break computes numbers and sizes."""
    reason = cause.first
    is_filled = reason.kind == "keys" and reason.other_instance is None  # a dictionary of the caller, or of an argument
    is_text = reason.kind == "value" and (reason.expected or "").startswith(("'", '"'))
    is_kept = reason.holder in _OWN and reason.kind in ("requires_grad", "dtype", "device")  # of a parameter, not of a result
    return (is_text or is_kept or is_filled or reason.kind in ("object", "function", "none")) and not is_result(cause)


def _joined(root: Finding, follow: Sequence[OfCauses]) -> Finding:
    if not follow:
        return root
    recompiles = [recompile for each in follow for cause in each.causes for recompile in cause.recompiles]
    count, functions = len(recompiles), len({recompile.location for recompile in recompiles})
    limited = " up to the recompile limit" if any(each.finding.rule == "DX301" for each in follow) else ""
    split = (
        f"{count} recompile{'s' if count > 1 else ''} of {functions} function{'s' if functions > 1 else ''} that it splits off"
    )
    return replace(
        root,
        title=f"{root.title}; {split}{limited}",
        seconds=root.seconds + sum(each.finding.seconds for each in follow),
        uncompiled_seconds=root.uncompiled_seconds + sum(each.finding.uncompiled_seconds for each in follow),
        uncompiled_share=max(root.uncompiled_share, *(each.finding.uncompiled_share for each in follow)),
        evidence=(*root.evidence, *(f"{each.finding.rule} {each.finding.title}" for each in follow)),
    )
