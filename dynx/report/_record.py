"""Render the records that dynx returns to the user, such as `guards.inspect(fn)`, for a terminal and for a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, Template
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dynx.advice import spoken
from dynx.records import CacheReport, CostNode, Entry, GuardCosts, GuardInfo, Verdict
from dynx.records.cudagraphs import CudagraphReport, GraphInput, GraphUse
from dynx.records.shown import Shown
from dynx.report import _words as words

_PLACE = "asked for at"  # the column of source locations
_SHOWN = 12  # rows of a table on a terminal; in a notebook, a click shows the others


class Block(NamedTuple):
    """One part of a rendered record: a title with a remark, a table, and notes below it.

    Columns whose names begin with `#` hold numbers.
    """

    title: str
    remark: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    notes: tuple[str, ...] = ()


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
    hidden = len(block.rows) - _SHOWN
    notes = [*([f"and {hidden} more"] if hidden > 0 else []), *block.notes]
    yield from (Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in notes)


def _table(block: Block, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in block.columns:
        number = name.startswith("#")
        whole = number or name == _PLACE
        table.add_column(name.lstrip("#"), justify="right" if number else "left", no_wrap=whole, overflow="fold")
    for row in block.rows[:_SHOWN]:
        cells = zip(block.columns, row, strict=True)
        table.add_row(*(Text(_in_lines(text, width * 2 // 5) if name == _PLACE else text) for name, text in cells))
    return table


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
.dynx-record table { font-size: 12px; border-collapse: collapse; margin: .2em 0 .4em; color: inherit; background: none }
.dynx-record th { font-weight: 400; opacity: .65 }
.dynx-record td, .dynx-record th { padding: .15em .9em .15em 0; vertical-align: top; text-align: left; border: 0 }
.dynx-record td, .dynx-record th { border-bottom: 1px solid #8883; background: none }
.dynx-record .n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.dynx-record summary { cursor: pointer }
</style>
{% macro table(block, rows) %}<table><tr>
{% for name in block.columns %}<th class="{{ 'n' if name[0] == '#' }}">{{ name.lstrip("#") }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td class="{{ 'n' if block.columns[loop.index0][0] == '#' }}">{{ cell }}</td>
{%- endfor %}</tr>
{% endfor %}</table>{% endmacro %}
{% for block in blocks %}<div class="title">{{ block.title }} <span class="dim">{{ block.remark }}</span></div>
{% if block.rows %}{{ table(block, block.rows[:shown]) }}{% endif %}
{% if block.rows | length > shown %}<details><summary class="dim">and {{ block.rows | length - shown }} more</summary>
{{ table(block, block.rows[shown:]) }}</details>{% endif %}
{% for note in block.notes %}<div class="dim">{{ note }}</div>{% endfor %}
{% endfor %}</div>
"""


def fragment(record: Shown) -> str:
    """Render a record as HTML; all text of the program is escaped."""
    return _template().render(blocks=list(_blocks(record)), shown=_SHOWN)


@cache
def _template() -> Template:
    return Environment(autoescape=True).from_string(_PAGE)


def _blocks(record: Shown) -> Iterator[Block]:
    for cls, blocks in _BLOCKS.items():
        if isinstance(record, cls):
            yield from blocks(record)


def _of_cache(report: CacheReport) -> Iterator[Block]:
    versions = words.plural(len(report.entries), "version")
    yield Block(words.function(report.location), f"{versions} in torch's cache" if report.entries else "nothing compiled")
    for entry in report.entries:
        yield from _of_entry(entry)


def _of_entry(entry: Entry) -> Iterator[Block]:
    on_values = sorted((guard for guard in entry.guards if guard.is_on_value), key=lambda guard: guard.is_on_library)
    rows = [(spoken(guard.source), guard.expected or "", guard.kind, _asked(guard)) for guard in on_values]
    others = entry.size - len(on_values)
    notes = (f"and {others} on global state or on Dynamo's own attributes of tensors",) if others else ()
    yield Block(f"{entry.id}  {entry.backend}", _facts(entry), ("value", "expected", "guard", _PLACE), rows, notes)


def _facts(entry: Entry) -> str:
    parts = [f"resume function after line {entry.resumes}"] if entry.resumes is not None else []
    parts.append(words.plural(entry.size, "guard"))
    parts += ["pinned"] if entry.is_pinned else []
    parts += [words.seconds(entry.seconds)] if entry.seconds is not None else []
    parts += [words.plural(entry.hits, "call")] if entry.hits is not None else []
    parts += [f"{name}={value}" for name, value in entry.config.items() if value not in ("None", "False") and "." not in name]
    return "  ".join(parts)


def _asked(guard: GuardInfo) -> str:
    if guard.location is None:
        return ""
    more = len(guard.requesters) - 1
    return words.line(guard.location) + (f" and {words.plural(more, 'line')} more" if more > 0 else "")


_OUTCOMES = {
    "hit": "hits a cache entry",
    "compile": "would compile for the first time",
    "recompile": "would recompile",
    "eager": "runs eagerly",
    "unknown": "cannot be predicted before the call",
}


def _of_verdict(verdict: Verdict) -> Iterator[Block]:
    rows = [
        (
            reason.against or "",
            reason.subject.replace(reason.source, spoken(reason.source)),
            reason.expected if reason.expected is not None else "?",
            reason.got if reason.got is not None else "?",
            words.line(reason.location) if reason.location is not None else "",
            reason.rule or "",
        )
        for reason in verdict.reasons
    ]
    remark = ": ".join(part for part in (verdict.entry, verdict.why) if part)
    notes = tuple(f"decided only during the call: {unknown}" for unknown in verdict.unknown)
    columns = ("version", "value", "expected", "got", _PLACE, "rule")
    yield Block(f"{words.function(verdict.location)} {_OUTCOMES[verdict.outcome]}", remark, columns, rows, notes)


def _of_costs(costs: GuardCosts) -> Iterator[Block]:
    share = f"{costs.share:.0%}" if costs.share >= 0.005 else "less than 1 %"
    title = f"guards take {_us(costs.ns)} of a call of {_us(costs.call_ns)} ({share})"
    rows = [(_us(setting.ns), str(setting.guards), setting.name, "; ".join(setting.misses)) for setting in costs.settings]
    yield Block(title, words.function(costs.location), ("#time", "#guards", "setting", "would miss"), rows, (_advice(costs),))
    for frame in costs.frames:
        nodes = sorted((node for _, node in frame.tree.walk()), key=lambda node: node.own_ns, reverse=True)
        part = [
            (_us(node.own_ns), f"{node.own_ns / max(frame.tree.ns, 1e-9):.0%}", str(len(node.guards)), _named(node))
            for node in nodes
            if node.guards
        ]
        where = f"resume function after line {frame.resumes}" if frame.resumes is not None else "the function"
        times = f", {frame.times} times a call" if frame.times > 1 else ""
        remark = f"{where}{times}: {words.plural(frame.size, 'guard')} in {_us(frame.ns)}"
        yield Block(f"{frame.id}  most expensive values", remark, ("#time", "#part", "#guards", "value"), part)


def _advice(costs: GuardCosts) -> str:
    if costs.advice == costs.settings[0]:
        return "no cheaper setting is safe in every case"
    return f"advice: {costs.advice.how}"


def _named(node: CostNode) -> str:
    if node.source not in ("", "L"):
        return spoken(node.source)
    others = dict.fromkeys(spoken(guard.source) for guard in node.guards if guard.kind != "global_state")
    return ", ".join(["global state", *filter(None, others)])


def _us(ns: float) -> str:
    return f"{ns / 1000:.2f} us" if ns < 1e5 else f"{ns / 1000:,.0f} us"


def _of_graphs(report: CudagraphReport) -> Iterator[Block]:
    title = words.plural(len(report.graphs), "graph")
    captured = sum(use.recordings > 0 for use in report.graphs)
    yield Block(title, f"{captured} captured", notes=report.notes)
    for use in report.graphs:
        rows = [
            (graph_input.name, _class_of(graph_input), graph_input.why, words.size(graph_input.nbytes))
            for graph_input in use.plan.inputs
        ]
        yield Block(f"{use.plan.part} graph", _use(use), ("input", "class", "why", "#bytes"), rows, tuple(_skips(use)))


def _class_of(graph_input: GraphInput) -> str:
    return graph_input.kind + (", changed" if graph_input.is_mutated else "")


def _use(use: GraphUse) -> str:
    if not use.recordings:
        return "runs uncaptured"
    counts = [words.plural(use.recordings, "recording"), words.plural(use.replays, "replay")]
    copied = (
        f"{words.plural(use.copies, 'copy', 'copies')} of {words.size(use.bytes_copied)} a call" if use.copies else "no copies"
    )
    return ", ".join([*counts, copied, f"{words.size(use.bytes_held)} held"])


def _skips(use: GraphUse) -> Iterator[str]:
    for skip in use.plan.skips:
        where = f"{words.line(skip.location)}: " if skip.location is not None else ""
        yield f"{where}{skip.reason}; {skip.advice}"
    for number, piece in enumerate(use.plan.pieces):
        state = f"not captured: {piece.why_uncaptured}" if piece.why_uncaptured else "captured"
        yield f"piece {number + 1}: {words.plural(piece.launches, 'launch', 'launches')}, {state}"
    yield from use.notes


_BLOCKS: dict[type[Shown], Callable[[Any], Iterator[Block]]] = {
    CacheReport: _of_cache,
    Entry: _of_entry,
    Verdict: _of_verdict,
    GuardCosts: _of_costs,
    CudagraphReport: _of_graphs,
}
