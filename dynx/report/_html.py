"""Render a run as self-contained HTML for a notebook, in light and dark themes, with the same text as on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, groupby
from typing import NamedTuple

from markupsafe import Markup

from dynx.records import RunRecords
from dynx.records.table import Bytes, Cell, Seconds, Source, Times
from dynx.report import _cells as cells
from dynx.report import _findings as findings
from dynx.report import _phases as phases
from dynx.report import _styles as styles
from dynx.report import _uncompiled as uncompiled
from dynx.report import _words as words
from dynx.report._cells import tables_of
from dynx.report._comptime.post_mortem import fragment as post_mortem
from dynx.report._comptime.timeline import fragment as timeline

_pages = count(1)  # makes element ids unique: a notebook may show several runs


def fragment(run: RunRecords) -> str:
    """Render a run as an HTML fragment; all text of the program is escaped."""
    anchor = f"dynx-pm-{next(_pages)}-"
    states = findings.states(run)
    shown, hidden = findings.split(run, findings.TOP)
    return styles.page(
        "run.html",
        anchor=anchor,
        numbers=lambda row: findings.numbers_of(row, states),
        evidence=lambda row: "\n".join(line for finding in row.findings for line in finding.evidence),
        phases=[" · ".join(group) for group in phases.texts(run)],
        shares=[(str(share), styles.part(share.seconds, number)) for number, share in enumerate(phases.by_phase(run))],
        post_mortem=Markup(post_mortem(run.post_mortem, anchor)) if run.post_mortem else "",  # its template escapes
        timeline=Markup(timeline(run.traced, run.timeline)) if run.traced else "",  # its template escapes
        summary=words.summary(run),
        environment=" · ".join(words.environment(run)),
        problems=run.problems[:5],
        shown=shown,
        why=uncompiled.why(run) if uncompiled.is_uncompiled(run) else (),
        hidden=hidden,
        more=findings.more(hidden),
        tables=list(_tables(run)),
        seconds=words.seconds,
        uncompiled_text=words.uncompiled,
        where=words.where,
        expected=words.expected(run),
        calm=words.CALM if words.is_calm(run) else "no advice applies to this run",
    )


class _Cell(NamedTuple):
    text: str
    attribute: str  # of the element: the class "n" for a number


def _tables(run: RunRecords) -> Iterator[tuple[str, tuple[str, ...], list[tuple[_Cell, ...]]]]:
    """Yield title, columns and rows of each table of records that is not empty; tables with the same title are merged."""
    for title, group in groupby(tables_of(run), key=lambda listed: listed[0].heading or listed[0].title):
        listed = list(group)
        rows = [tuple(map(_cell, row)) for table, records in listed for record in records for row in table.cells(record)]
        if rows:
            yield title, listed[0][0].columns, rows


def _cell(cell: Cell) -> _Cell:
    """Return a table cell as text, which the template escapes; generated code as a `<pre>` element, already escaped."""
    text = cells.plain(cell)
    attribute = Markup(' class="n"') if isinstance(cell, (int, Seconds, Bytes, Times)) else ""
    return _Cell(Markup("<pre>{}</pre>").format(text) if isinstance(cell, Source) else text, attribute)
