"""Runs as people see them: a terminal screen, a notebook page. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dynx.records.run import Run

__all__ = ["html", "terminal"]


def terminal(run: Run, *, full: bool = False) -> RenderableType:
    """Render a run for a terminal: the summary, the findings, and with `full` every table."""
    from dynx.report._terminal import screen

    return screen(run, full=full)


def html(run: Run) -> str:
    """Render a run as self-contained, escaped HTML for a notebook, light and dark."""
    from dynx.report._html import fragment

    return fragment(run)
