"""Render a run for a terminal: the findings of the advice rules, most expensive first, then tables of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dynx.records import Finding, Location, Record, Run
from dynx.records import table as listing
from dynx.report import _cells as cells
from dynx.report import _words as words
from dynx.report._cells import tables_of
from dynx.report._post_mortem import screen as post_mortem
from dynx.report._timeline import screen as timeline

_SHOWN = 5  # unreadable lines of the run file that are listed; the others are only counted
_WIDE = 110  # terminal width in columns from which each finding fits on one line


def screen(run: Run, *, full: bool) -> RenderableType:
    """Render the summary, the findings, and records to which no advice rule applies; `full` adds the tables of all records."""
    return Padding(Group(*_parts(run, full=full)), (0, 1))


def _parts(run: Run, *, full: bool) -> Iterator[RenderableType]:
    yield title(run)
    yield Text("")
    yield Text("   ".join(words.summary(run)), style="bold")
    for problem in run.problems[:_SHOWN]:
        yield Text(f"damaged: {problem}", style="yellow")
    if len(run.problems) > _SHOWN:
        yield Text(f"and {len(run.problems) - _SHOWN} more damaged lines", style="yellow")
    yield Text("")
    if run.findings:
        yield _Findings(run.findings, run)
    elif words.is_calm(run):
        yield Text(words.CALM, style="green")
    else:
        yield Text(words.UNCLEAR if run.compiles else "no advice applies to this run")
    for table in _tables(run, full=full):
        yield Text("")
        yield table
    if run.post_mortem:
        yield Text("")
        yield post_mortem(run.post_mortem)
    if run.traced:
        yield Text("")
        yield timeline(run.traced, run.timeline)
    rules = [finding.rule for finding in run.findings]
    if rules:
        yield Text("")
        yield Text(f"dynx rule {rules[0]} explains", style="dim")


def title(run: Run) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column(ratio=1)
    line.add_column(justify="right", no_wrap=True)
    line.add_row(
        Text(words.command(run.header), style="bold", overflow="ellipsis", no_wrap=True),
        Text(" · ".join(words.environment(run)), style="dim"),
    )
    return line


class _Findings:
    """Rich renderable of the findings: a table on a wide terminal, a paragraph for each finding on a narrow one."""

    def __init__(self, findings: tuple[Finding, ...], run: Run) -> None:
        self._findings = findings
        self._states = {(state.location.file, state.location.line): n for n, state in enumerate(run.post_mortem, 1)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._table() if options.max_width >= _WIDE else self._paragraphs()

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("lost", justify="right", no_wrap=True)
        table.add_column("rule", no_wrap=True)
        table.add_column("where")
        table.add_column("what happened")
        table.add_column("do this")
        for finding in self._findings:
            table.add_row(
                words.seconds(finding.seconds),
                Text(finding.rule, style="bold"),
                _at(finding),
                self._title(finding),
                Text(finding.advice, style="green"),
            )
        return table

    def _paragraphs(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(justify="right", no_wrap=True)
        table.add_column()
        for number, finding in enumerate(self._findings):
            if number:
                table.add_row("", "")
            rule = Text.assemble((finding.rule, "bold"), "  ", _at(finding))
            table.add_row(words.seconds(finding.seconds), rule)
            table.add_row("", self._title(finding))
            table.add_row("", Text(f"→ {finding.advice}", style="green"))
        return table

    def _title(self, finding: Finding) -> Text:
        """Render the title of a finding, with the number of the post-mortem of the graph break at the same source line."""
        number = self._states.get((finding.location.file, finding.location.line))
        text = Text(finding.title)
        return text if number is None else text.append(f"  (post-mortem {number})", style="dim")


def _at(finding: Finding) -> Text:
    """Render the location of a finding, with the line that called the function."""
    text, caller = _where(finding.location), words.called_from(finding)
    return text.append(f"  ({caller})", style="dim") if caller else text


def _where(location: Location) -> Text:
    """Render a source location as a terminal hyperlink to the file."""
    own = location.own
    uri = Path(own.file).absolute().as_uri() if not own.file.startswith("<") else ""
    text = Text(words.place(location), style=f"cyan link {uri}#{own.line}" if uri else "cyan")
    text.append(f"  {own.function}", style="not dim")
    if own is not location:
        text.append(f"  (in {location.library}, {words.short_name(location)})", style="dim")
    return text


def _tables(run: Run, *, full: bool) -> Iterator[RenderableType]:
    tables = [_failed(run)]
    for title, group in groupby(tables_of(run), key=lambda listed: listed[0].title if full else listed[0].brief):
        listed = list(group)
        grid = _GRIDS.get(title)
        if grid is not None:
            tables.append(grid(run))
        elif title:
            tables.append(_entries(title, (row for table, records in listed for row in _rows(table, records, full=full))))
    yield from (table for table in tables if table is not None)


def troubles(run: Run) -> RenderableType | None:
    """Render the failures of dynx itself, such as a child process that it could not watch; None if there were none."""
    table = Run.troubles.table
    return _entries(table.title, _rows(table, run.troubles, full=True)) if table is not None else None


def _rows(table: listing.Table[Any], records: tuple[Record, ...], *, full: bool) -> Iterator[tuple[str, Text, Text | None]]:
    for record in records:
        if full or table.is_brief(record):
            for line in table.lines_of(record):
                place = _where(line.location) if line.location is not None else None
                yield cells.amount(line.amount), cells.fact(line.fact, table.style), place


def _entries(title: str, rows: Iterable[tuple[str, Text, Text | None]]) -> RenderableType | None:
    """Render a titled list of records: cost or count, description, and the source location below; None if it is empty."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=7)
    table.add_column()
    for amount, fact, place in rows:
        table.add_row(Text(amount, style="dim"), fact)
        if place is not None:
            table.add_row("", place)
    return Group(Text(title, style="bold"), table) if table.row_count else None


def _failed(run: Run) -> RenderableType | None:
    rows = (
        (
            compile.id,
            Text(f"{compile.location.function}: {compile.reason or 'torch gives no reason'}"),
            _where(compile.location),
        )
        for compile in run.compiles
        if compile.outcome == "failed"
    )
    return _entries("Failed to compile", rows)


def _compiles(run: Run) -> RenderableType | None:
    if not run.compiles:
        return None
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("id", no_wrap=True)
    table.add_column("function", ratio=1)
    for name in ("tries", "nodes", "guards", "total", *_phases(run)):
        table.add_column(name, justify="right", no_wrap=True)
    for compile in run.compiles:
        resumed = f" from line {compile.resumes}" if compile.resumes is not None else ""
        outcome = "" if compile.outcome == "compiled" else f" {compile.outcome}: {compile.reason}"
        table.add_row(
            compile.id,
            Text(compile.location.function + resumed + outcome),
            str(len(compile.attempts)),
            _count(compile.nodes),
            _count(compile.guards),
            words.seconds(compile.seconds),
            *(words.seconds(compile.phases.get(name, 0.0)) for name in _phases(run)),
        )
    return Group(Text("Compiles", style="bold"), table)


def _phases(run: Run) -> tuple[str, ...]:
    """Return the compile phases (trace, aot, backend, guards) that took at least 1 ms in some compilation."""
    used = {name for compile in run.compiles for name, seconds in compile.phases.items() if seconds >= 0.001}
    return tuple(name for name in ("trace", "aot", "backend", "guards") if name in used)


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


_GRIDS: dict[str, Callable[[Run], RenderableType | None]] = {"Compiles": _compiles}  # records shown as a table with columns
