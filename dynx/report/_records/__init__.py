"""Render a result of dynx (a record), such as that of `guards.inspect(fn)`, for a terminal and for a notebook.

For each class of record, a function converts the record to blocks. A block is a title with a table and notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dynx.records import CacheReport, Entry, GuardCosts, Verdict
from dynx.records.backward import BackwardCapture, CaptureReport, CaptureVerdict
from dynx.records.cache_key import CacheDiff
from dynx.records.check import CheckReport
from dynx.records.cudagraphs import CudagraphReport
from dynx.records.effects import FrameEffects
from dynx.records.fix_report import FixReport
from dynx.records.profile import DynamicSizes, ProfileData, ProfileDiff, ProfileMatches
from dynx.records.run_diff import RunDiff
from dynx.records.saved_report import GradError, SavedPlan, SavedReport
from dynx.records.shown import Shown
from dynx.records.symbols import SymbolReport
from dynx.report import _styles as styles
from dynx.report._grid import Column, Grid
from dynx.report._records import (
    backward,
    cache_keys,
    check,
    cudagraphs,
    effects,
    fix,
    guards,
    profiles,
    run_diff,
    saved,
    symbols,
)
from dynx.report._records.block import Block
from dynx.report._trimmed import Trimmed
from dynx.report._wrap import Wrapped

_SHOWN = 12  # rows of a table on a terminal; in a notebook, a click shows the remaining rows


def screen(record: Shown) -> RenderableType:
    """Render a record for a terminal, as blocks of a title, a table and notes."""
    parts = [part for block in _blocks(record) for part in (Text(""), *_parts(block))]
    return Trimmed(Group(*parts[1:]))


def _limit(block: Block) -> int:
    return len(block.rows) if block.is_whole else _SHOWN


def _parts(block: Block) -> Iterator[RenderableType]:
    yield Wrapped(Text.assemble((block.title, "bold"), (f"  {block.remark}" if block.remark else "", "dim")))
    if block.rows:
        columns = [_column(name) for name in block.columns]
        yield Grid(columns, [tuple(map(Text, row)) for row in block.rows[: _limit(block)]], indent=2)
    hidden = len(block.rows) - _limit(block)
    notes = [*([f"and {hidden} more"] if hidden > 0 else []), *block.notes]
    yield from (Padding(Wrapped(Text(note, style="dim")), (0, 0, 0, 2)) for note in notes)


def _column(name: str) -> Column:
    return Column(name[1:], "whole", right=True) if name.startswith("#") else Column(name)


def fragment(record: Shown) -> str:
    """Render a record as HTML; all text of the program is escaped."""
    return styles.page("record.html", blocks=list(_blocks(record)), shown=_SHOWN, bar=styles.bar)


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
    CaptureReport: backward.of_report,
    BackwardCapture: backward.of_capture,
    CaptureVerdict: backward.of_verdict,
    SymbolReport: symbols.of_symbols,
    ProfileData: profiles.of_profile,
    ProfileDiff: profiles.of_diff,
    DynamicSizes: profiles.of_explanation,
    ProfileMatches: profiles.of_matches,
    CacheDiff: cache_keys.of_causes,
    FrameEffects: effects.of_frame,
    SavedReport: saved.of_report,
    GradError: saved.of_error,
    SavedPlan: saved.of_plan,
    CheckReport: check.of_check,
    RunDiff: run_diff.of_diff,
    FixReport: fix.of_fixes,
}
