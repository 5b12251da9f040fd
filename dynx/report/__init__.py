"""Views of runs and of records (results of dynx): for a terminal (rich), for a notebook (HTML), and as Perfetto traces.

This package is private: users print runs and records, which call it. It does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from dynx.records.post_mortem import BreakState
    from dynx.records.run_records import RunRecords
    from dynx.records.shown import Shown
    from dynx.records.timeline import LineCost, TracedCompile

__all__ = [
    "html",
    "perfetto",
    "post_mortem",
    "post_mortem_html",
    "processes",
    "record",
    "record_html",
    "terminal",
    "timeline",
    "timeline_html",
]


def terminal(run: RunRecords, *, full: bool = False, top: int | None = None, file: Path | None = None) -> RenderableType:
    """Render a run for a terminal: the summary, the seconds by compile phase, and the findings.

    Args:
        run: the run.
        full: adds the tables of all records.
        top: the number of findings shown, the most expensive first; also the number of rows of each table unless `full`. By
            default 10, with `full` all.
        file: the run file, for the command that shows the remaining findings.
    """
    from dynx.report._terminal import screen
    from dynx.report._trimmed import Trimmed

    return Trimmed(screen(run, full=full, top=top, file=file))


def processes(children: Sequence[tuple[Path, RunRecords]], *, launcher: RunRecords | None = None) -> RenderableType:
    """Render one line for each child process of a program: rank, counts, run file.

    `launcher` is the run of a parent process such as torchrun, which compiled nothing itself; its title is rendered above.
    """
    from dynx.report._processes import screen
    from dynx.report._trimmed import Trimmed

    return Trimmed(screen(children, launcher))


def html(run: RunRecords) -> str:
    """Render a run as self-contained HTML for a notebook, in light and dark themes; text of the program is escaped."""
    from dynx.report._html import fragment

    return fragment(run)


def perfetto(run: RunRecords) -> str:
    """Render the compilations and CUDA graph captures of a run as a JSON trace for ui.perfetto.dev and chrome://tracing."""
    from dynx.report._perfetto import document

    return document(run)


def post_mortem(states: tuple[BreakState, ...]) -> RenderableType:
    """Render for a terminal the frames, locals and guards that Dynamo had at each graph break, with source lines."""
    from dynx.report._comptime.post_mortem import screen
    from dynx.report._trimmed import Trimmed

    return Trimmed(screen(states))


def post_mortem_html(states: tuple[BreakState, ...]) -> str:
    """Render as self-contained HTML the frames, locals and guards that Dynamo had at each graph break; text is escaped."""
    from dynx.report._comptime.post_mortem import fragment

    return fragment(states)


def timeline(compiles: tuple[TracedCompile, ...], lines: tuple[LineCost, ...]) -> RenderableType:
    """Render for a terminal the time that Dynamo spent tracing: totals, then the most expensive source lines."""
    from dynx.report._comptime.timeline import screen
    from dynx.report._trimmed import Trimmed

    return Trimmed(screen(compiles, lines))


def timeline_html(compiles: tuple[TracedCompile, ...], lines: tuple[LineCost, ...]) -> str:
    """Render the time that Dynamo spent tracing as HTML: source lines coloured by cost; a click shows FX nodes and guards."""
    from dynx.report._comptime.timeline import fragment

    return fragment(compiles, lines)


def record(shown: Shown) -> RenderableType:
    """Render for a terminal a record that dynx returns to the user, such as the result of `guards.inspect`."""
    from dynx.report._records import screen
    from dynx.report._trimmed import Trimmed

    return Trimmed(screen(shown))


def record_html(shown: Shown) -> str:
    """Render as self-contained HTML a record that dynx returns to the user, such as the result of `guards.inspect`."""
    from dynx.report._records import fragment

    return fragment(shown)
