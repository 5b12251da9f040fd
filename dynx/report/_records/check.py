"""Blocks of what `dynx.check` returns."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.check import CheckReport, Diff
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_check(report: CheckReport) -> Iterator[Block]:
    """Yield whether both sides do the same, the differences, and what stands behind the statement."""
    calls = f"{words.plural(report.calls, 'call')}, {words.plural(report.compiles, 'graph')} compiled with {report.backend}"
    if report.is_vacuous:
        notes = (
            ()
            if report.raised
            else ("pass arguments with tensors; functions that raise, or that torch.compile skips, cannot be compared",)
        )
        yield Block(f"{report.name}: VACUOUS, nothing was compiled", calls, notes=(*notes, *_notes(report)))
    elif report.ok:
        yield Block(f"{report.name} does the same compiled", calls, notes=tuple(_notes(report)))
    else:
        yield Block(f"{report.name} does something else compiled", calls, notes=tuple(_notes(report)))
    if report.diffs:
        rows = [(diff.path, diff.eager, diff.compiled, _line_of(diff), str(diff.call)) for diff in report.diffs]
        yield Block(words.plural(len(rows), "difference"), "", ("what", "eager", "compiled", "line", "#call"), rows)


def _line_of(diff: Diff) -> str:
    """Format the line that last changed the object, or that raised."""
    return words.line(diff.location) if diff.location is not None else ""


def _notes(report: CheckReport) -> Iterator[str]:
    if report.raised:
        yield f"both sides raise {report.raised}"
    if report.stage:
        yield f"it begins in {report.stage}" + (f", at {report.node}" if report.node else "")
    if report.node_location is not None:
        yield f"computed at {words.line(report.node_location)}"
    if report.location is not None:
        yield f"defined at {words.line(report.location)}"
    for graph_break in report.graph_breaks:
        yield f"graph break at {words.line(graph_break.location)}: {graph_break.reason}"
    if report.shared:
        classes = ", ".join(report.shared)
        yield f"both sides used the same objects of {classes}, which cannot be copied"
