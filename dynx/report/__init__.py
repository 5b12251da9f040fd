"""Views of runs and records: terminal screens, notebook pages, Perfetto traces, Graphviz graphs. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from dynx.records.cudagraphs import CudagraphReport
    from dynx.records.post_mortem import BreakState
    from dynx.records.run import Run
    from dynx.records.shown import Shown
    from dynx.records.timeline import LineCost, TracedCompile

__all__ = [
    "dot",
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


def terminal(run: Run, *, full: bool = False) -> RenderableType:
    """Render a run for a terminal: the summary, the findings, and with `full` every table."""
    from dynx.report._terminal import screen

    return screen(run, full=full)


def processes(children: Sequence[tuple[Path, Run]], *, launcher: Run | None = None) -> RenderableType:
    """Render one line for each process that a program started; with `launcher` below the title of that run."""
    from dynx.report._processes import screen

    return screen(children, launcher)


def html(run: Run) -> str:
    """Render a run as self-contained, escaped HTML for a notebook, light and dark."""
    from dynx.report._html import fragment

    return fragment(run)


def perfetto(run: Run) -> str:
    """Render a run along time as JSON for Perfetto (ui.perfetto.dev) and chrome://tracing."""
    from dynx.report._perfetto import document

    return document(run)


def post_mortem(states: tuple[BreakState, ...]) -> RenderableType:
    """Render the states at graph breaks for a terminal, with the source around each."""
    from dynx.report._post_mortem import screen

    return screen(states)


def post_mortem_html(states: tuple[BreakState, ...]) -> str:
    """Render the states at graph breaks as self-contained, escaped HTML."""
    from dynx.report._post_mortem import fragment

    return fragment(states)


def timeline(compiles: tuple[TracedCompile, ...], lines: tuple[LineCost, ...]) -> RenderableType:
    """Render the cost of tracing for a terminal: compilations, then the most expensive lines."""
    from dynx.report._timeline import screen

    return screen(compiles, lines)


def timeline_html(compiles: tuple[TracedCompile, ...], lines: tuple[LineCost, ...]) -> str:
    """Render the cost of tracing as escaped HTML: the lines coloured by cost, a click shows nodes and guards."""
    from dynx.report._timeline import fragment

    return fragment(compiles, lines)


def dot(report: CudagraphReport) -> str:
    """Render the captured graphs, their inputs and pieces, in the Graphviz language."""
    from dynx.report._dot import document

    return document(report)


def record(shown: Shown) -> RenderableType:
    """Render a record that a function of dynx returned for a terminal."""
    from dynx.report._record import screen

    return screen(shown)


def record_html(shown: Shown) -> str:
    """Render a record that a function of dynx returned as self-contained, escaped HTML."""
    from dynx.report._record import fragment

    return fragment(shown)
