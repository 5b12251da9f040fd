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
_PAGE = """
<div class="dynx">
<style>
.dynx { font: 13px/1.45 system-ui, sans-serif; max-width: 90em; color: inherit }
.dynx .cost { display: flex; gap: 1.6em; flex-wrap: wrap; margin: .2em 0 .8em; font-weight: 600 }
.dynx .phases { display: flex; gap: 1.6em; flex-wrap: wrap; margin: -.5em 0 .8em; opacity: .8 }
.dynx .dim { opacity: .65; font-weight: 400 }
.dynx.dynx table { font-size: 13px } .dynx.dynx.dynx td, .dynx.dynx.dynx th { padding: .25em .9em .25em 0 }
{{ styles }}
.dynx .stack { display: flex; max-width: 40em; height: .5em; margin: 0 0 .8em } .dynx .stack span { min-width: 1px }
.dynx code { font: 12px ui-monospace, monospace; background: none; color: inherit; padding: 0 }
.dynx .do { color: #18794e } .dynx .warn { color: #ad5700 }
@media (prefers-color-scheme: dark) { .dynx .do { color: #4cc38a } .dynx .warn { color: #ffb224 } }
body[data-jp-theme-light="false"] .dynx .do, .vscode-dark .dynx .do { color: #4cc38a }
.dynx > details > summary { cursor: pointer; font-weight: 600; margin: .3em 0 }
</style>
<div class="cost">
{% for part in summary %}<span>{{ part }}</span>{% endfor %}<span class="dim">{{ environment }}</span></div>
{% if phases %}<div class="phases">{% for group in phases %}<span>{{ group }}</span>{% endfor %}</div>
<div class="stack">{% for text, style in shares %}<span title="{{ text }}" style="{{ style }}"></span>{% endfor %}</div>
{% endif %}
{% for problem in problems %}<div class="warn">damaged: {{ problem }}</div>{% endfor %}
{% macro listed(rows) %}
<table><tr><th class="n">lost</th><th>rule</th><th>where</th><th>what happened</th><th>do this</th></tr>
{% for row in rows %}{% set f = row.first %}<tr><td class="n">
{%- if f.wrong %}<b class="warn">wrong</b>{% else %}{{ seconds(row.seconds) }}{% endif %}</td>
<td title="{{ evidence(row) }}"><b>{{ f.rule }}</b></td>
<td><code>{{ where(f.location) }}{% if row.also_at %} {{ row.also_at }}{% endif %}
{%- if row.called_from %} ({{ row.called_from }}){% endif %}</code></td>
<td>{{ f.title }}{% for number in numbers(row) %} <a href="#{{ anchor }}{{ number }}">post-mortem {{ number }}</a>
{%- endfor %}</td><td class="do">{{ f.advice }}</td></tr>
{% endfor %}</table>
{% endmacro %}
{% if shown %}{{ listed(shown) }}
{% if hidden %}<details><summary>{{ more }}</summary>{{ listed(hidden) }}</details>{% endif %}
{% elif why %}{% for each in why %}<div>{{ each.reason }}{% if each.advice %} <span class="do">→ {{ each.advice }}</span>
{%- endif %}</div>{% endfor %}
{% else %}<div class="do">{{ calm }}</div>{% endif %}
{% for title, columns, rows in tables %}
<details><summary>{{ title }} <span class="dim">{{ rows | length }}</span></summary>
<table><tr>{% for column in columns %}<th{{ rows[0][loop.index0].attribute }}>{{ column }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td{{ cell.attribute }}>{{ cell.text }}</td>{% endfor %}</tr>
{% endfor %}</table></details>
{% endfor %}
{% if post_mortem %}<h4>Post-mortem</h4>{{ post_mortem }}{% endif %}
{% if timeline %}<h4>Tracing, line by line</h4>{{ timeline }}{% endif %}
</div>
"""


def fragment(run: RunRecords) -> str:
    """Render a run as an HTML fragment; all text of the program is escaped."""
    anchor = f"dynx-pm-{next(_pages)}-"
    states = findings.states(run)
    shown, hidden = findings.split(run, findings.TOP)
    return styles.template(
        _PAGE
    ).render(
        anchor=anchor,
        numbers=lambda row: findings.numbers_of(row, states),
        evidence=lambda row: "\n".join(line for finding in row.findings for line in finding.evidence),
        phases=[" · ".join(group) for group in phases.texts(run)],
        shares=[(str(share), styles.part(share.seconds, number)) for number, share in enumerate(phases.by_phase(run))],
        styles=styles.of_tables("dynx"),
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
        where=words.where,
        calm=words.CALM if words.is_calm(run) else "no advice applies to this run",
    )


class _Cell(NamedTuple):
    text: str
    attribute: str  # of the element: the class "n" for a number


class _Listed(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[_Cell, ...]]


def _tables(run: RunRecords) -> Iterator[_Listed]:
    """Yield the nonempty tables of records of a run; tables with the same title are merged."""
    for title, group in groupby(tables_of(run), key=lambda listed: listed[0].heading or listed[0].title):
        listed = list(group)
        rows = [tuple(map(_cell, row)) for table, records in listed for record in records for row in table.cells(record)]
        if rows:
            yield _Listed(title, listed[0][0].columns, rows)


def _cell(cell: Cell) -> _Cell:
    """Return a table cell as text or, for generated code, as an escaped `<pre>` element; the template escapes text."""
    text = cells.plain(cell)
    attribute = Markup(' class="n"') if isinstance(cell, (int, Seconds, Bytes, Times)) else ""
    return _Cell(Markup("<pre>{}</pre>").format(text) if isinstance(cell, Source) else text, attribute)
