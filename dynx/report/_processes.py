"""Render one line for each child process of a program, such as the ranks that torchrun starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dynx.records import RunRecords
from dynx.records.location import short_path
from dynx.report import _words as words
from dynx.report._grid import Column, Grid
from dynx.report._terminal import title, troubles
from dynx.report._trimmed import Trimmed


def screen(children: Sequence[tuple[Path, RunRecords]], *, launcher: RunRecords | None = None) -> RenderableType:
    """Render one line for each child process of a program: rank, counts, run file.

    `launcher` is the run of a parent process such as torchrun, which compiled nothing itself; its title is rendered above.
    """
    parts: list[RenderableType] = [Padding(_table(children), (0, 1))]
    if launcher is not None:
        parts = [Padding(title(launcher), (0, 1)), Text(""), *parts]
        unobserved = troubles(launcher)
        if unobserved is not None:
            parts += [Text(""), Padding(unobserved, (0, 1))]
    return Trimmed(Group(*parts))


def _table(children: Sequence[tuple[Path, RunRecords]]) -> RenderableType:
    rows = [
        (
            Text(words.rank(run.header) or f"child {run.header.get('pid', '')}", style="bold"),
            Text(words.plural(len(run.compiles), "compile")),
            Text(words.plural(len(run.recompiles), "recompile")),
            Text(words.plural(len(run.graph_breaks), "graph break")),
            Text(f"{short_path(str(path))}{_ending(run)}", style="dim"),
        )
        for path, run in children
    ]
    return Grid((Column(kind="whole"), *(Column(kind="whole", right=True) for _ in range(3)), Column()), rows)


def _ending(run: RunRecords) -> str:
    """Return how a process ended, such as "(exit 1)"; empty if it ended without an error."""
    outcome = str(run.end.get("outcome", "")) if run.is_complete else "did not finish"
    return "" if outcome in ("finished", "exit 0") else f"  ({outcome})"
