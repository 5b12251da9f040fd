"""Render findings (advice) for a terminal. Findings about wrong results come first, then the most expensive findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dynx.records import Finding, RunRecords
from dynx.report import _cells as cells
from dynx.report import _words as words
from dynx.report._grid import Column, Grid

TOP = 10  # findings shown by default: two screens of a terminal
_WIDE = 110  # terminal width in columns from which each finding fits on one line
_TABLE = (
    Column("lost", "whole", right=True),
    Column("rule", "whole"),
    Column("where"),
    Column("what happened"),
    Column("do this"),
)
_PARAGRAPHS = (Column(kind="whole", right=True), Column())


@dataclass(frozen=True, slots=True)
class Row:
    """Findings that share a row: with the same rule, title, advice, and function or class, on different lines."""

    findings: tuple[Finding, ...]  # in the order of `Finding.rank`

    @property
    def first(self) -> Finding:
        """The first finding of the row, whose location, title and advice are shown for the row."""
        return self.findings[0]

    @property
    def seconds(self) -> float:
        """The compile time in seconds that is lost at all lines of the row."""
        return sum(finding.seconds for finding in self.findings)

    @property
    def uncompiled_share(self) -> float:
        """The largest part of the time that a function ran uncompiled since torch gave it up, from 0 to 1."""
        return max(finding.uncompiled_share for finding in self.findings)

    @property
    def also_at(self) -> str:
        """The lines of the other findings of the row, as `also :19, :40 Block.loss`; empty if there are none."""
        first = self.first.location.own
        others = sorted({(own.line, own.function) for own in (finding.location.own for finding in self.findings)})
        texts = [
            f":{line}" if function == first.function else f":{line} {function}"
            for line, function in others
            if (line, function) != (first.line, first.function)
        ]
        return f"also {', '.join(texts)}" if texts else ""

    @property
    def called_from(self) -> str:
        """The lines that called the function, as `called from a.py:17, a.py:20`; empty if none is known."""
        callers = dict.fromkeys(filter(None, map(words.called_from, self.findings)))
        return ", ".join(caller if not number else caller.removeprefix("called from ") for number, caller in enumerate(callers))


def rows(findings: Iterable[Finding]) -> tuple[Row, ...]:
    """Return findings as rows, those about wrong results first, then by cost. Findings that differ only by line share a row.

    For example, three `print` calls in one `forward` share a row, and so do resume functions that recompile because of the
    same size. Findings with different titles or advice have different causes and never share a row.
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        own = finding.location.own
        library = finding.location.library or ""
        key = (finding.rule, finding.title, finding.advice, own.file, _scope(own.function), library)
        groups.setdefault(key, []).append(finding)
    folded = (Row(tuple(sorted(group, key=lambda finding: finding.rank))) for group in groups.values())
    return tuple(sorted(folded, key=lambda row: (not row.first.wrong, -row.seconds)))


def _scope(function: str) -> str:
    """Return `Net` for the method `Net.forward`, else the name unchanged: findings in one class may share a row."""
    parent = function.rpartition(".")[0]
    return function if not parent or parent.endswith("<locals>") else parent


def split(run: RunRecords, top: int | None) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the first `top` rows of the findings of a run (all if None), and the remaining rows."""
    folded = rows(run.findings)
    return (folded, ()) if top is None else (folded[:top], folded[top:])


def more(hidden: tuple[Row, ...]) -> str:
    """Return how many findings are not shown, and what they cost: `+7 more findings, 400 ms`."""
    count = sum(len(row.findings) for row in hidden)
    seconds = sum(row.seconds for row in hidden)
    cost = f", {words.seconds(seconds)}" if seconds > 0 else ""
    return f"+{words.plural(count, 'more finding')}{cost}"


def command(hidden: tuple[Row, ...], shown: tuple[Row, ...], file: Path | None) -> str:
    """Return how the user can see all findings: a `dynx show` command, or `run.findings` if the run has no file."""
    count = len(shown) + sum(len(row.findings) for row in hidden)
    return f"{words.show(file)} --top {count}" if file is not None else "see run.findings"


class Findings:
    """Rich renderable of findings: a table on a wide terminal, a paragraph for each finding on a narrow one."""

    def __init__(self, rows: tuple[Row, ...], run: RunRecords) -> None:
        self._rows, self._states = rows, states(run)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._table() if options.max_width >= _WIDE else self._paragraphs()

    def _table(self) -> Grid:
        return Grid(_TABLE, [(_cost(row), _rule(row), _at(row), self._title(row), _advice(row)) for row in self._rows])

    def _paragraphs(self) -> Grid:
        lines: list[tuple[Text, Text]] = []
        for number, row in enumerate(self._rows):
            lines += [(Text(""), Text(""))] if number else []
            lines.append((_cost(row), Text.assemble(_rule(row), "  ", _at(row))))
            lines += [(Text(""), self._title(row)), (Text(""), Text.assemble(("→ ", "green"), _advice(row)))]
        return Grid(_PARAGRAPHS, lines)

    def _title(self, row: Row) -> Text:
        """Render the title of a row of findings, with the numbers of the post-mortems at its lines."""
        text = Text(row.first.title)
        if row.uncompiled_share:
            text.append(f"; {words.uncompiled(row.uncompiled_share)}", style="bold")
        numbers = ", ".join(map(str, numbers_of(row, self._states)))
        return text.append(f"  (post-mortem {numbers})", style="dim") if numbers else text


def states(run: RunRecords) -> dict[tuple[str, int], int]:
    """Return the number of each post-mortem (state of Dynamo at a graph break) of a run, by file and line."""
    return {(state.location.file, state.location.line): number for number, state in enumerate(run.post_mortem, 1)}


def numbers_of(row: Row, states: dict[tuple[str, int], int]) -> tuple[int, ...]:
    """Return the numbers of the post-mortems at the lines of a row; `states` has the number for each file and line."""
    lines = ((finding.location.file, finding.location.line) for finding in row.findings)
    return tuple(sorted({states[line] for line in lines if line in states}))


def _cost(row: Row) -> Text:
    """Render the compile time that the findings of a row cost, or "wrong" if compiled code leaves wrong values."""
    return Text("wrong", style="bold red") if row.first.wrong else Text(words.seconds(row.seconds))


def _rule(row: Row) -> Text:
    return Text(row.first.rule, style="bold")


def _advice(row: Row) -> Text:
    return Text(row.first.advice, style="green")


def _at(row: Row) -> Text:
    """Render where a row applies: the location of its first finding, the lines of the others, and the lines of the callers."""
    text = cells.place(row.first.location)
    if row.also_at:
        text.append(f"  {row.also_at}", style="cyan")
    return text.append(f"  ({row.called_from})", style="dim") if row.called_from else text
