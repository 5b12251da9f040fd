"""Describe how records are listed: as lines on a terminal, as the rows of a table in a notebook.

A table yields cells, which are plain values; terminal and notebook format them (`dynx/report/_cells.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dynx.records.location import Location
from dynx.records.recompile import Reason
from dynx.records.record import Record

R = TypeVar("R", bound=Record)


class Seconds(NamedTuple):
    """A table cell with a duration in seconds."""

    value: float


class Bytes(NamedTuple):
    """A table cell with an amount of memory in bytes."""

    value: int


class Times(NamedTuple):
    """A table cell with a count: how often the same event was observed."""

    number: int


class Change(NamedTuple):
    """A table cell with a value before and after a change, shown as "128, then 256"; None for an unknown value."""

    first: str | None
    second: str | None

    def __str__(self) -> str:
        return f"{'?' if self.first is None else self.first}, then {'?' if self.second is None else self.second}"


class Function(NamedTuple):
    """A table cell with a function, shown by its name and its first line."""

    location: Location


class Strong(NamedTuple):
    """A table cell with text that a terminal shows in bold."""

    text: str


class Value(NamedTuple):
    """A table cell that names a guarded value, by torch's expression for it (`L['x']`)."""

    source: str


class Source(NamedTuple):
    """A table cell with lines of generated code, each with the user's line that it comes from."""

    lines: tuple[tuple[str, Location | None], ...]


# None is an empty cell
Cell = str | int | Location | Reason | Seconds | Bytes | Times | Change | Function | Strong | Value | Source | None


class Line(NamedTuple):
    """One line of a list of records on a terminal: an amount, a description, and a source location below."""

    amount: Cell  # what it cost, how often it was seen, or its compile id
    fact: tuple[Cell, ...]
    location: Location | None = None  # shown below the fact


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """How records of one kind are listed: title, columns, and functions that turn a record into rows or lines.

    Tables with the same title are shown as one. A terminal shows `lines`, or lines made from `cells`; a notebook shows a table
    of `columns` and `cells`, and nothing if there are no columns.
    """

    title: str
    columns: tuple[str, ...] = ()
    cells: Callable[[R], Iterable[tuple[Cell, ...]]] = lambda record: ()  # the rows of one record
    lines: Callable[[R], Iterable[Line]] | None = None
    heading: str = ""  # the title in a notebook, if it differs
    brief: str = ""  # the title on a terminal without `--full`; if empty, the table is shown only with `--full`
    is_brief: Callable[[R], bool] = lambda record: True  # whether a record is shown without `--full`
    style: str = ""  # of the facts on a terminal, as rich names it
    order: int = 500  # tables are shown in ascending order

    def lines_of(self, record: R) -> Iterator[Line]:
        """Yield the lines that a terminal shows for a record."""
        if self.lines is not None:
            yield from self.lines(record)
            return
        for row in self.cells(record):
            yield _line(row)


def _line(row: tuple[Cell, ...]) -> Line:
    """Convert a table row into a terminal line: amount (duration, else count, else first cell), other cells, location."""
    seconds = [cell for cell in row if isinstance(cell, Seconds)]
    times = [cell for cell in row if isinstance(cell, Times)]
    locations = [cell for cell in row if isinstance(cell, Location)]
    amount = [*seconds, *times, *row][0]
    fact = [
        cell
        for cell in row
        if cell is not amount and cell not in ("", None) and not isinstance(cell, Seconds | Times | Location)
    ]
    return Line(amount, tuple(fact), locations[0] if locations else None)
