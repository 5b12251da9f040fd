"""What the doctor found, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from typing import Any

_STYLE = {"ok": "green", "changed": "yellow", "missing": "red"}


def screen(report: Any) -> RenderableType:
    return Padding(Group(*_parts(report)), (0, 1))


def _parts(report: Any) -> Iterator[RenderableType]:
    verdict = "everything dynx needs is there" if report.healthy else "some of what dynx needs is missing"
    yield Text(f"torch {report.torch} · Python {report.python} · {verdict}", style="bold")
    yield Text("")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for each in report.capabilities:
        state = "absent" if each.state == "missing" and each.optional else each.state
        table.add_row(
            Text(state, style=_STYLE.get(state, "dim")),
            Text(each.purpose),
            Text(each.path, style="dim", overflow="fold"),
        )
    yield table
    if report.canaries:
        yield Text("")
        songs = Table.grid(padding=(0, 2))
        songs.add_column(no_wrap=True)
        for each in report.canaries:
            songs.add_row(
                Text("failed" if each.failure else "ok", style="red" if each.failure else "green"),
                Text(each.name),
                Text(each.failure or "", style="red"),
            )
        yield songs
