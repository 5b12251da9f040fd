"""Show the result of `dynx.check`, which compares eager and compiled calls, as blocks (title, table, notes)."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.check import CheckReport
from dynx.report import _words as words
from dynx.report._records.block import Block

_TITLES = {
    "same": "{} does the same compiled",
    "different": "{} does something else compiled",
    "vacuous": "{}: VACUOUS, nothing was compiled",
    "not isolated": "{}: NOT ISOLATED, nothing is proven",
}


def of_check(report: CheckReport) -> Iterator[Block]:
    """Yield blocks: the outcome, objects of the program that changed although the calls used copies, and the differences."""
    calls = f"{words.plural(report.calls, 'call')}, {words.plural(report.compiles, 'graph')} compiled with {report.backend}"
    yield Block(_TITLES[report.outcome].format(report.name), calls, notes=tuple(_notes(report)))
    if report.leaks:
        rows = [(leak.path, leak.before, leak.after) for leak in report.leaks]
        yield Block(f"{words.plural(len(rows), 'object')} of the program itself changed", "", ("what", "before", "after"), rows)
    if report.diffs:
        diffs = [
            (diff.path, diff.eager, diff.compiled, words.line(diff.location), report.call_of(diff).removeprefix("call "))
            for diff in report.diffs
        ]
        title = words.plural(len(diffs), "difference")
        if report.outcome == "not isolated":
            title += ", which objects that both sides used may have made"
        yield Block(title, "", ("what", "eager", "compiled", "line", "#call"), diffs)


def _notes(report: CheckReport) -> Iterator[str]:
    if report.outcome == "vacuous" and not report.raised:
        yield "pass arguments with tensors; functions that raise, or that torch.compile skips, cannot be compared"
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
    if report.unread:
        yield f"both sides used the same objects of {', '.join(report.unread)}, which can neither be copied nor compared"
    elif report.shared and report.outcome != "same":
        yield f"both sides used the same objects of {', '.join(report.shared)}, which cannot be copied"
    yield from report.notes
