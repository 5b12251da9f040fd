"""Render a run for a terminal: the compile time by phase, the most expensive findings, then tables of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from dynx.records import Compile, Location, Record, RunRecords
from dynx.records import table as listing
from dynx.report import _cells as cells
from dynx.report import _findings as findings
from dynx.report import _phases as phases
from dynx.report import _uncompiled as uncompiled
from dynx.report import _words as words
from dynx.report._cells import tables_of
from dynx.report._comptime.post_mortem import screen as post_mortem
from dynx.report._comptime.timeline import screen as timeline
from dynx.report._grid import Column, Grid
from dynx.report._trimmed import Trimmed
from dynx.report._wrap import Wrapped

_ENTRY = (Column(kind="whole", right=True, least=7), Column())
_COMMAND = 20  # least width of the command beside the environment
_SHOWN = 5  # unreadable lines of the run file that are listed; further lines are only counted


def screen(run: RunRecords, *, full: bool = False, top: int | None = None, file: Path | None = None) -> RenderableType:
    """Render a run: the summary, the seconds by compile phase, the findings, and records to which no advice rule applies.

    `full` adds tables of all records. The `top` most expensive findings (wrong results first) and, without `full`, rows of
    each table are shown (default: 10, with `full` all). `file` is the run file: the command that shows all findings names it.
    """
    if top is None and not full:
        top = findings.TOP
    return Trimmed(Padding(Group(*_parts(run, full=full, top=top, file=file)), (0, 1)))


def _parts(run: RunRecords, *, full: bool, top: int | None, file: Path | None) -> Iterator[RenderableType]:
    yield title(run)
    yield Text("")
    yield _Flow((tuple(words.summary(run)),), separator="   ", style="bold")
    if run.compiles:
        yield _Flow(phases.texts(run), separator=" · ", style="dim", bold=phases.longest(run))
    for problem in run.problems[:_SHOWN]:
        yield Wrapped(Text(f"damaged: {problem}", style="yellow"))
    if len(run.problems) > _SHOWN:
        yield Text(f"and {len(run.problems) - _SHOWN} more damaged lines", style="yellow")
    yield Text("")
    shown, hidden = findings.split(run, top)
    if shown:
        yield findings.Findings(shown, run)
    elif words.is_calm(run):
        yield Text(words.CALM, style="green")
    elif uncompiled.is_uncompiled(run):
        yield from _uncompiled(run)
    else:
        yield Text(words.UNCLEAR if run.compiles else "no advice applies to this run")
    for text in words.expected(run):
        yield Text(text, style="dim")
    if hidden:
        yield Text("")
        yield Text(f"{findings.more(hidden)}: {findings.command(hidden, shown, file)}", style="dim")
    for table in _tables(run, full=full, top=top):
        yield Text("")
        yield table
    if run.post_mortem:
        yield Text("")
        yield post_mortem(run.post_mortem)
    if run.traced:
        yield Text("")
        yield timeline(run.traced, run.timeline)
    if shown:
        yield Text("")
        yield Text(f"dynx rule {shown[0].first.rule} explains", style="dim")


def _uncompiled(run: RunRecords) -> Iterator[RenderableType]:
    for reason in uncompiled.why(run):
        yield Wrapped(reason.reason)
        if reason.advice:
            yield Wrapped(Text(f"→ {reason.advice}", style="green"))


def title(run: RunRecords) -> RenderableType:
    return _Title(Text(words.command(run.header), style="bold"), Text(" · ".join(words.environment(run)), style="dim"))


class _Title:
    """Rich renderable of the command line of a run, with its environment at the right, or below on a narrow terminal."""

    def __init__(self, command: Text, environment: Text) -> None:
        self._command, self._environment = command, environment

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - self._environment.cell_len - 2
        if room < min(self._command.cell_len, _COMMAND):
            yield Wrapped(self._command)
            yield Wrapped(self._environment)
            return
        command = self._command.copy()
        command.truncate(room, overflow="ellipsis", pad=True)
        yield Text.assemble(command, "  ", self._environment)


class _Flow:
    """Rich renderable of groups of short texts in lines; a group that does not fit begins a new line, and no text is split."""

    def __init__(self, groups: tuple[tuple[str, ...], ...], *, separator: str, style: str, bold: str = "") -> None:
        self._groups, self._separator, self._style, self._bold = groups, separator, style, bold

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for group in self._groups:
            for number, text in enumerate(group):
                needed = text if number else self._separator.join(group)
                separator = (self._separator if number else "   ") if line else ""
                if line and len(line) + len(separator) + len(needed) > options.max_width:
                    yield self._styled(line)
                    line, separator = "", ""
                line += separator + text
        if line:
            yield self._styled(line)

    def _styled(self, line: str) -> Text:
        text = Text(line, style=self._style)
        if self._bold and self._bold in line:
            start = line.index(self._bold)
            text.stylize("not dim bold", start, start + len(self._bold))
        return text


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a titled list of records: cost or count, description, and below it the source location."""

    amount: str
    fact: Text
    place: Text | None
    seconds: float = 0.0
    count: int = 0


def _tables(run: RunRecords, *, full: bool, top: int | None) -> Iterator[RenderableType]:
    limit = None if full else top
    tables = [_entries("Failed to compile", _failed(run), limit)] if full else []
    for title, group in groupby(tables_of(run), key=lambda listed: listed[0].title if full else listed[0].brief):
        if title == "Compiles":
            tables += _compiles(run)
        elif title:
            rows = [row for table, records in group for row in _rows(table, records, full=full)]
            tables.append(_entries(title, rows, limit))
    yield from (table for table in tables if table is not None)


def troubles(run: RunRecords) -> RenderableType | None:
    """Render the failures of dynx itself, such as a child process that it could not observe; return None if there are none."""
    table = RunRecords.troubles.table
    return _entries(table.title, _rows(table, run.troubles, full=True)) if table is not None else None


def _rows(table: listing.Table[Any], records: tuple[Record, ...], *, full: bool) -> Iterator[_Entry]:
    for record in records:
        if full or table.is_brief(record):
            for line in table.lines_of(record):
                place = cells.place(line.location) if line.location is not None else None
                yield _Entry(cells.amount(line.amount), cells.fact(line.fact, table.style), place, *cells.cost(line.amount))


def _entries(title: str, rows: Iterable[_Entry], limit: int | None = None) -> RenderableType | None:
    """Render a titled list of records; return None if it is empty.

    If the list is longer than `limit`, only the entries with the most seconds, then the highest counts, are shown.
    """
    entries = list(rows)
    hidden: list[_Entry] = []
    if limit is not None and len(entries) > limit:
        entries.sort(key=lambda entry: (-entry.seconds, -entry.count))
        entries, hidden = entries[:limit], entries[limit:]
    lines: list[tuple[Text, Text]] = []
    for entry in entries:
        lines.append((Text(entry.amount, style="dim"), entry.fact))
        if entry.place is not None:
            lines.append((Text(""), entry.place))
    if hidden:
        seconds = sum(entry.seconds for entry in hidden)
        cost = f", {words.seconds(seconds)}" if seconds > 0 else ""
        lines.append((Text(""), Text(f"+{len(hidden)} more{cost}: --full shows all", style="dim")))
    return Group(Text(title, style="bold"), Grid(_ENTRY, lines)) if lines else None


def _failed(run: RunRecords) -> Iterator[_Entry]:
    for compile in run.compiles:
        if compile.outcome == "failed":
            fact = Text(f"{compile.location.function}: {compile.reason or 'torch gives no reason'}")
            yield _Entry(compile.id, fact, cells.place(compile.location), compile.seconds)


def _compiles(run: RunRecords) -> Iterator[RenderableType | None]:
    """Render a table of all compilations, grouped by function, then the reasons why Dynamo skipped compilations."""
    if not run.compiles:
        return
    names = _phases(run)
    rows: list[list[Text]] = []

    def add(*row: str, style: str = "") -> None:
        rows.append([Text(text, style=style) for text in row])

    numbers = ("tries", "nodes", "guards", "total", *(_PHASES[name] for name in names))
    columns = [Column("id", "whole"), Column("function"), *(Column(name, "whole", right=True) for name in numbers)]
    for function, group in _by_function(run).items():
        if len(group) > 1:
            add(f"{len(group)}x", function, "", "", "", *_seconds(group, names), style="bold")
        for compile in group:
            outcome = "" if compile.outcome == "compiled" else compile.outcome.replace("_", " ")
            text = f"  {outcome}" if len(group) > 1 else f"{function}  {outcome}".rstrip()
            counts = (len(compile.attempts), compile.nodes, compile.guards)
            facts = ("" if count is None else str(count) for count in counts)
            add(compile.id, text, *facts, *_seconds([compile], names))
    yield Group(Text("Compiles", style="bold"), Grid(columns, rows))
    yield _entries("Skipped compilations, run eagerly", _skipped(run))


def _by_function(run: RunRecords) -> dict[str, list[Compile]]:
    """Return the compilations by the name of their function; a resume function is named by the line at which it begins."""
    groups: dict[tuple[Location, int | None], list[Compile]] = {}
    for compile in run.compiles:
        groups.setdefault((compile.location, compile.resumes), []).append(compile)
    named: dict[str, list[Compile]] = {}
    for (location, resumes), group in groups.items():
        name = location.function + (f" from line {resumes}" if resumes is not None else "")
        named[name if name not in named else f"{name}  {words.line(location)}"] = group
    return named


def _seconds(compiles: list[Compile], names: tuple[str, ...]) -> list[str]:
    """Return the total seconds of compilations, then their seconds in each of the phases `names`, as texts."""
    totals = [sum(compile.seconds for compile in compiles)]
    totals += [sum(compile.phases.get(name, 0.0) for compile in compiles) for name in names]
    return [words.seconds(total) for total in totals]


def _skipped(run: RunRecords) -> Iterator[_Entry]:
    """Yield an entry for each reason why Dynamo skipped compilations, with the skipped functions and their lines."""
    reasons: dict[str, list[Compile]] = {}
    for compile in run.compiles:
        if compile.outcome == "skipped":
            reasons.setdefault(compile.reason or "torch gives no reason", []).append(compile)
    for reason, group in reasons.items():
        files = dict.fromkeys(words.function(compile.location) for compile in group)
        yield _Entry(f"{len(group)}x", Text(reason), Text(", ".join(files), style="cyan"))


# names of columns
_PHASES = {
    "trace": "Dynamo",
    "aot": "AOT",
    "backend": "backend",
    "autotuning": "autotuning",
    "kernels": "kernels",
    "guards": "guards",
}


def _phases(run: RunRecords) -> tuple[str, ...]:
    """Return the compile phases that took at least 1 ms in some compilation."""
    used = {name for compile in run.compiles for name, seconds in compile.phases.items() if seconds >= 0.001}
    return tuple(name for name in _PHASES if name in used)
