"""Render the time that Dynamo spent tracing each source line, for a terminal and for a notebook."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from dynx.records.comptime import LineCost, TracedCompile
from dynx.report import _styles as styles
from dynx.report import _words as words
from dynx.report._grid import Column, Grid
from dynx.report._trimmed import Trimmed
from dynx.report._wrap import Wrapped

_SHOWN = 20  # source lines shown on a terminal
_NAMES = 40  # FX nodes, and guards, listed for one source line in a notebook
_COLUMNS = (
    *(Column(name, "whole", right=True, least=6) for name in ("self", "total", "nodes", "guards")),
    Column("where"),
    Column("line", "cut"),
)


def screen(compiles: tuple[TracedCompile, ...], lines: tuple[LineCost, ...]) -> RenderableType:
    """Render for a terminal the total times, and the source lines that Dynamo took longest to trace."""
    if not compiles:
        return Trimmed(Text("nothing was traced", style="dim"))
    more = len(lines) - _SHOWN
    rest = [Text(f"and {more} more lines", style="dim")] if more > 0 else []
    total = Wrapped(Text("   ".join(summary(compiles)), style="bold"))
    return Trimmed(Group(total, Text(""), _table(lines[:_SHOWN]), *rest))


def _table(lines: Iterable[LineCost]) -> Grid:
    rows = [
        (
            Text(words.seconds(line.seconds)),
            Text(words.seconds(line.cumulative)),
            Text(str(len(line.nodes) or "-")),
            Text(str(len(line.guards) + len(line.shape_guards) or "-")),
            Text(words.line(line.location), style="cyan"),
            Text(line.source.strip()),
        )
        for line in lines
    ]
    return Grid(_COLUMNS, rows)


def summary(compiles: tuple[TracedCompile, ...]) -> list[str]:
    """Return texts such as `1.2 s tracing`: time of tracing, in the backend, and in discarded attempts; number of compiles."""
    tracing = sum(compile.seconds for compile in compiles)
    backend = sum(compile.backend for compile in compiles)
    wasted = sum(compile.wasted for compile in compiles)
    parts = [f"{words.seconds(tracing)} tracing", f"{words.seconds(backend)} in the backend"]
    return [*parts, f"{words.seconds(wasted)} in discarded attempts", words.plural(len(compiles), "compile")]


def fragment(compiles: tuple[TracedCompile, ...], lines: tuple[LineCost, ...]) -> str:
    """Render each traced source line, grouped by function, as HTML: seconds, FX nodes, guards, line number.

    All text of the program is escaped.
    """
    return styles.page(
        "timeline.html",
        summary=summary(compiles),
        files=_by_function(lines),
        seconds=words.seconds,
        names=_names,
        guards=lambda line: [f"{guard.kind} {guard.source}".strip() for guard in line.guards],
        bar=styles.bar,
    )


def _by_function(lines: tuple[LineCost, ...]) -> list[tuple[str, float, list[tuple[LineCost, float]]]]:
    """Return (title, seconds, lines) by function, most expensive first; each line with its background opacity (0 to 0.6)."""
    most = max((line.seconds for line in lines), default=0.0) or 1.0
    groups: dict[str, list[LineCost]] = {}
    for line in lines:
        file = words.line(line.location).rpartition(":")[0]
        groups.setdefault(f"{line.location.function}  {file}", []).append(line)
    functions = []
    for title, rows in groups.items():
        ordered = sorted(rows, key=lambda line: line.location.line)
        functions.append((title, sum(line.seconds for line in rows), [(line, 0.6 * line.seconds / most) for line in ordered]))
    return sorted(functions, key=lambda function: -function[1])


def _names(values: Iterable[str]) -> str:
    named = list(values)
    more = f" … {len(named)} in all" if len(named) > _NAMES else ""
    return ", ".join(named[:_NAMES]) + more
