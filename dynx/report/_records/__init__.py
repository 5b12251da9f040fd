"""Render the records that dynx returns to the user, such as `guards.inspect(fn)`, for a terminal and for a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, Template
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dynx.records import CacheReport, Entry, GuardCosts, Verdict
from dynx.records.cache_key import CacheDiff
from dynx.records.check import CheckReport
from dynx.records.cudagraphs import CudagraphReport
from dynx.records.effects import EffectReport, FrameEffects
from dynx.records.fix_report import FixReport
from dynx.records.profile import DynamicSizes, ProfileData, ProfileDiff, ProfileMatches
from dynx.records.run_diff import RunDiff
from dynx.records.saved_report import GradError, SavedPlan, SavedReport
from dynx.records.shown import Shown
from dynx.records.symbols import SymbolReport
from dynx.report import _styles as styles
from dynx.report._records import cache_keys, check, cudagraphs, effects, fix, guards, profiles, run_diff, saved, symbols
from dynx.report._records.block import CODE, PLACES, Block

_SHOWN = 12  # rows of a table on a terminal; in a notebook, a click shows the others
_SHORT = 18  # characters of a column that is not split beside one of source code


def screen(record: Shown) -> RenderableType:
    """Render a record for a terminal: title, table and notes of each of its blocks."""
    return _Screen(tuple(_blocks(record)))


class _Screen:
    """Rich renderable of blocks, in which no line break is inside of `path:line`."""

    def __init__(self, blocks: tuple[Block, ...]) -> None:
        self._blocks = blocks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, block in enumerate(self._blocks):
            yield Group(*([Text("")] if number else []), *_parts(block, options.max_width))


def _parts(block: Block, width: int) -> Iterator[RenderableType]:
    yield Text.assemble((_fitted(block.title, width), "bold"), (f"  {block.remark}", "dim"), overflow="fold")
    if block.rows:
        yield Padding(_table(block, width), (0, 0, 0, 2))
    hidden = len(block.rows) - _limit(block)
    notes = [*([f"and {hidden} more"] if hidden > 0 else []), *block.notes]
    yield from (Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in notes)


def _limit(block: Block) -> int:
    return len(block.rows) if block.is_whole else _SHOWN


def _table(block: Block, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    code = _width_of_code(block, width) if set(CODE) & set(block.columns) else None
    for name in block.columns:
        number = name.startswith("#")
        whole = number or name in PLACES or (code is not None and _natural(block, name, width) <= _SHORT)
        justify: Literal["left", "right"] = "right" if number else "left"
        size = code if name in CODE else None
        table.add_column(name.lstrip("#"), justify=justify, no_wrap=whole, overflow="fold", width=size)
    for row in block.rows[: _limit(block)]:
        table.add_row(*(Text(_cell(name, text, width, code)) for name, text in zip(block.columns, row, strict=True)))
    return table


def _cell(column: str, text: str, width: int, code: int | None) -> str:
    if column in PLACES:
        return _in_lines(text, width * 2 // 5)
    return " ".join(_split(word, code) for word in text.split(" ")) if column in CODE and code is not None else text


def _width_of_code(block: Block, width: int) -> int:
    """Return the width of the column of source code: what it needs, or half of what short columns leave."""
    natural = {name: _natural(block, name, width) for name in block.columns}
    left = width - 2 - 2 * len(natural) - sum(size for name, size in natural.items() if name in PLACES or size <= _SHORT)
    needed = next(size for name, size in natural.items() if name in CODE)
    others = sum(size for name, size in natural.items() if name not in (*CODE, *PLACES) and size > _SHORT)
    return max(12, min(needed, max(left // 2, left - others)))


def _natural(block: Block, column: str, width: int) -> int:
    """Return the width that a column needs to have each cell on one line."""
    at = block.columns.index(column)
    return max(
        len(_in_lines(cell, width * 2 // 5) if column in PLACES else cell)
        for cell in (column, *(row[at] for row in block.rows))
    )


def _split(word: str, width: int) -> str:
    """Split a word of source code into lines of at most `width` characters, after `.`, `(` or `,`, else after `_`."""
    lines = [""]
    for name in re.findall(r"[^.(,]*[.(,]+|[^.(,]+", word):
        for part in [name] if len(name) <= width else re.findall(r"[^_]*_+|[^_]+", name):
            if lines[-1] and len(lines[-1]) + len(part) > width:
                lines.append("")
            lines[-1] += part
    return "\n".join(lines)


def _in_lines(place: str, width: int) -> str:
    """Shorten a location, and put a remark that follows it on a line of its own if both do not fit."""
    text = _fitted(place, width)
    return text if len(text) <= width else text.replace(" and ", "\nand ", 1)


def _fitted(text: str, width: int) -> str:
    """Shorten each location `path:line` in a text to `width` columns by leaving out its first folders: `…/model.py:58`."""
    return re.sub(r"[^\s/]*(?:/[^\s/]+)+:\d+", lambda match: _without_folders(match[0], width), text)


def _without_folders(place: str, width: int) -> str:
    folders = place.split("/")
    while len(place) > width and len(folders) > 1:
        del folders[0]
        place = "/".join(["…", *folders])
    return place


_PAGE = """
<div class="dynx-record">
<style>
.dynx-record { font: 13px/1.45 system-ui, sans-serif; color: inherit }
.dynx-record .dim { opacity: .65; font-weight: 400 } .dynx-record .title { font-weight: 600; margin-top: .6em }
.dynx-record.dynx-record table { font-size: 12px }
.dynx-record.dynx-record.dynx-record td, .dynx-record.dynx-record.dynx-record th { padding: .15em .9em .15em 0 }
{{ styles }}
.dynx-record summary { cursor: pointer }
</style>
{% macro table(block, rows, first) %}{% set shares = block.shares %}<table><tr>
{% for name in block.columns %}<th class="{{ 'n' if name[0] == '#' }}">{{ name.lstrip("#") }}</th>{% endfor %}</tr>
{% for row in rows %}{% set at = first + loop.index0 %}<tr>{% for cell in row %}
{%- if shares and block.columns[loop.index0] == block.amount %}<td class="n bar" style="{{ bar(shares[at]) }}">{{ cell }}</td>
{%- else %}<td class="{{ 'n' if block.columns[loop.index0][0] == '#' }}">{{ cell }}</td>
{%- endif %}{% endfor %}</tr>
{% endfor %}</table>{% endmacro %}
{% for block in blocks %}<div class="title">{{ block.title }} <span class="dim">{{ block.remark }}</span></div>
{% if block.rows %}{{ table(block, block.rows[:shown], 0) }}{% endif %}
{% if block.rows | length > shown %}<details><summary class="dim">and {{ block.rows | length - shown }} more</summary>
{{ table(block, block.rows[shown:], shown) }}</details>{% endif %}
{% for note in block.notes %}<div class="dim">{{ note }}</div>{% endfor %}
{% endfor %}</div>
"""


def fragment(record: Shown) -> str:
    """Render a record as HTML; all text of the program is escaped."""
    return _template().render(
        blocks=list(_blocks(record)), shown=_SHOWN, styles=styles.of_tables("dynx-record"), bar=styles.bar
    )


@cache
def _template() -> Template:
    return Environment(autoescape=True).from_string(_PAGE)


def _blocks(record: Shown) -> Iterator[Block]:
    for cls, blocks in _BLOCKS.items():
        if isinstance(record, cls):
            yield from blocks(record)


_BLOCKS: dict[type[Shown], Callable[[Any], Iterator[Block]]] = {
    CacheReport: guards.of_cache,
    Entry: guards.of_entry,
    Verdict: guards.of_verdict,
    GuardCosts: guards.of_costs,
    CudagraphReport: cudagraphs.of_graphs,
    SymbolReport: symbols.of_symbols,
    ProfileData: profiles.of_profile,
    ProfileDiff: profiles.of_diff,
    DynamicSizes: profiles.of_explanation,
    ProfileMatches: profiles.of_matches,
    CacheDiff: cache_keys.of_causes,
    EffectReport: effects.of_report,
    FrameEffects: effects.of_frame,
    SavedReport: saved.of_report,
    GradError: saved.of_error,
    SavedPlan: saved.of_plan,
    CheckReport: check.of_check,
    RunDiff: run_diff.of_diff,
    FixReport: fix.of_fixes,
}
