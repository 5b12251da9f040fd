"""Show captures of compiled autograd as blocks (title, table, notes)."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.backward import BackwardCapture, BackwardNode, CaptureReport, CaptureVerdict, RecaptureReason
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_report(report: CaptureReport) -> Iterator[Block]:
    """Yield one block: a row for each capture."""
    captures = report.captures
    calls = sum(capture.calls for capture in captures)
    rows = [
        (
            capture.id,
            _short(capture.reason, len(capture.reasons)),
            words.line(capture.reason.location),
            str(len(capture.nodes)),
            str(len(capture.hooks)),
            str(capture.calls),
            words.seconds(capture.seconds),
        )
        for capture in captures
    ]
    title = f"{words.plural(len(captures), 'backward pass', 'backward passes')} captured"
    columns = ("id", "why", "line", "#nodes", "#hooks", "#calls", "#seconds")
    notes = tuple(f"{capture.id}: {error}" for capture in captures for error in capture.order_errors)
    yield Block(title, f"{words.plural(calls, 'pass', 'passes')} ran them" if captures else "", columns, rows, notes)


def of_capture(capture: BackwardCapture) -> Iterator[Block]:
    """Yield a block with the reasons and times, and a block with a row for each autograd node."""
    sizes = f"{words.plural(capture.sizes, 'dynamic size')}, of which the graph reads {capture.dynamic_sizes}"
    times = ", ".join(f"{name} {words.seconds(seconds)}" for name, seconds in capture.phases.items())
    at = f" by {words.line(capture.location)}" if capture.location is not None else ""
    title = f"{capture.id} captured{' again' if capture.is_recapture else ''}{at}"
    reasons = tuple(f"→ {reason}" for reason in capture.reasons if reason.kind != "first")
    notes = (*reasons, sizes, times, *(f"order: {error}" for error in capture.order_errors))
    yield Block(title, words.plural(capture.calls, "call"), notes=tuple(filter(None, notes)))
    rows = [
        (
            str(node.number),
            node.short_name,
            node.function or node.parameter or node.module,
            words.line(node.location),
            _hooks(node),
            "eager" if node.is_eager else str(node.operations),
        )
        for node in capture.nodes
    ]
    columns = ("#", "node", "of", "line", "hooks", "#operations")
    yield Block("nodes", "in the order of the backward pass; lines are those of the forward operations", columns, rows)


def of_verdict(verdict: CaptureVerdict) -> Iterator[Block]:
    """Yield one block: the outcome, and what differs from the most similar capture."""
    title = "the backward pass would be captured" if verdict else "not known whether the backward pass would be captured"
    yield Block(title, verdict.why, notes=tuple(map(str, verdict.reasons)))


def _short(reason: RecaptureReason, count: int) -> str:
    """Return a reason without the line, which has its own column."""
    if reason.kind in ("first", "unknown"):
        return str(reason)
    of = f"{reason.node}: " if reason.node is not None else ""
    more = f"; and {count - 1} more" if count > 1 else ""
    return f"{of}{reason.change}{more}"


def _hooks(node: BackwardNode) -> str:
    return ", ".join(f"{hook.kind} {hook.function}".strip() for hook in node.hooks)
