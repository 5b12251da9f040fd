"""Findings about backward passes that compiled autograd captured again, one for each cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dynx.records.backward import BackwardCapture, RecaptureKind, RecaptureReason
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

AdviceOf = Callable[[RecaptureReason], str]


def recaptures(run: RunRecords, rule: str, advice: AdviceOf, *kinds: RecaptureKind) -> Iterator[Finding]:
    """Yield a finding for each cause of the given kinds; the first reason of a capture decides."""
    groups: dict[object, list[BackwardCapture]] = {}
    for capture in run.backward_captures:
        reason = capture.reason
        if reason.kind in kinds:
            function = reason.node.function if reason.node is not None and reason.kind != "compiled" else ""
            node = (reason.node.name, function) if reason.node is not None else None
            groups.setdefault((reason.kind, reason.subject, node, reason.location), []).append(capture)
    for group in groups.values():
        reason = group[0].reason
        location = reason.location or group[0].location
        if location is not None:
            yield Finding(
                rule,
                f"a backward pass is captured again{_times(len(group))}: {_change(group)}",
                location,
                sum(capture.seconds for capture in group),
                tuple(f"{capture.id}: {each}" for capture in group for each in capture.reasons),
                advice(reason) + _where(reason) + _besides(group),
                len(group),
                group[0].location if location != group[0].location else None,
            )


def _where(reason: RecaptureReason) -> str:
    is_graph = reason.kind in ("structure", "value", "dtype", "frozen")
    unknown = is_graph and reason.node is not None and reason.node.location is None
    return "; dynx.autograd.capture() names the line of the forward operation" if unknown else ""


def _besides(group: list[BackwardCapture]) -> str:
    """Return what remains when the program avoids the first reason: the pass is captured again for it."""
    others = min((capture.reasons[1:] for capture in group), key=len)
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"; also different: {others[0].change}{more}" if others else ""


def _times(count: int) -> str:
    return f" {count} times" if count > 1 else ""


def _change(group: list[BackwardCapture]) -> str:
    reason = group[0].reason
    if reason.kind == "unknown":
        return f"torch says: {reason.torch}" if reason.torch else "nothing that dynx can read differs"
    reasons = [capture.reason for capture in group]
    values = list(dict.fromkeys((each.before, each.changed_to) for each in reasons))
    if len(values) == 1:
        change = reason.change
    elif len({before for before, _ in values}) == 1:
        change = f"{reason.subject} {reason.before}, then {', '.join(after for _, after in values)}"
    else:
        change = f"{reason.subject} {'; '.join(f'{before}, then {after}' for before, after in values)}"
    return f"{_node(reasons)}{change}"


def _node(reasons: Sequence[RecaptureReason]) -> str:
    """Return the node, without its number in the pass if that differs."""
    node = reasons[0].node
    if node is None:
        return ""
    is_one = len({each.node.number for each in reasons if each.node is not None}) == 1
    return f"{node if is_one else node.short_name}: "
