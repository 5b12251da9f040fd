"""Render the report of `dynx doctor` for a terminal."""

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
    """Render a `DoctorReport`: the verdict, the private names of torch that dynx needs, and the canaries.

    A canary is a small program that tests one behaviour of torch that dynx relies on.
    """
    return Padding(Group(*_parts(report)), (0, 1))


def _parts(report: Any) -> Iterator[RenderableType]:
    verdict = "this torch has everything that dynx needs" if report.healthy else "some of what dynx needs is missing"
    yield Text(f"torch {report.torch} · Python {report.python} · {verdict}", style="bold")
    yield Text("")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for capability in report.capabilities:
        state = "absent" if capability.state == "missing" and capability.optional else capability.state
        table.add_row(
            Text(state, style=_STYLE.get(state, "dim")),
            Text(capability.purpose),
            Text(capability.path, style="dim", overflow="fold"),
        )
    yield table
    if report.canaries:
        yield Text("")
        canaries = Table.grid(padding=(0, 2))
        canaries.add_column(no_wrap=True)
        for canary in report.canaries:
            canaries.add_row(
                Text("failed" if canary.failure else "ok", style="red" if canary.failure else "green"),
                Text(canary.name),
                Text(canary.failure or "", style="red"),
            )
        yield canaries
