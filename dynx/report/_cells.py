"""Convert table cells to text: plain text for a notebook, styled text for a terminal.

Tables list the records of a run (`dynx/records/table.py`). A notebook shows them with columns; a terminal shows each record as
a line: an amount (seconds or a count), a description, and the location.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from dynx.advice import spoken
from dynx.advice.findings.described import subject_of
from dynx.records import Location, Reason, Record, RunRecords
from dynx.records.kind import kinds_of
from dynx.records.table import Bytes, Cell, Change, Function, Seconds, Source, Strong, Table, Times, Value
from dynx.report import _words as words


def tables_of(run: RunRecords) -> Iterator[tuple[Table[Any], tuple[Record, ...]]]:
    """Yield, for each kind of record, its table and the records of the run, in the order in which tables are displayed."""
    kinds = [(kind.table, kind.group) for kind in kinds_of(type(run)) if kind.table is not None]
    for table, group in sorted(kinds, key=lambda pair: pair[0].order):
        yield table, getattr(run, group)


def plain(cell: Cell) -> str:
    """Return a table cell as plain text."""
    match cell:
        case None:
            return ""
        case Location():
            return words.where(cell)
        case Reason():
            return _guard(cell)
        case Function():
            return words.function(cell.location)
        case Seconds():
            return words.seconds(cell.value)
        case Bytes():
            return words.size(cell.value)
        case Times():
            return str(cell.number)
        case Strong():
            return cell.text
        case Value():
            return spoken(cell.source)
        case Source():
            return words.code(cell.lines)
        case _:
            return str(cell)


def amount(cell: Cell) -> str:
    """Return the first cell of a line on a terminal as text, such as `120 ms`; a count is written as `3x`."""
    return f"{cell.number}x" if isinstance(cell, Times) else plain(cell)


def cost(cell: Cell) -> tuple[float, int]:
    """Return (seconds, count) of a cell, to sort records by; both are 0 unless the cell is a `Seconds` or a `Times`."""
    return (cell.value if isinstance(cell, Seconds) else 0.0), (cell.number if isinstance(cell, Times) else 0)


def fact(cells: Iterable[Cell], style: str = "") -> Text:
    """Join the cells that describe a record into one text for a line on a terminal; `style` is a style of rich."""
    text = Text(style=style)
    for number, cell in enumerate(cells):
        text.append("  " if number else "").append(plain(cell), "bold" if isinstance(cell, Strong) else None)
    return text


def place(location: Location) -> Text:
    """Return a location as a link to the user's line, followed by its function and, for library code, the library's line."""
    own = location.own
    uri = Path(own.file).absolute().as_uri() if not own.file.startswith("<") else ""
    text = Text(words.place(location), style=f"cyan link {uri}#{own.line}" if uri else "cyan")
    text.append(f"  {own.function}", style="not dim")
    if own is not location:
        text.append(f"  (in {location.library}, {words.short_name(location)})", style="dim")
    return text


def _guard(reason: Reason) -> str:
    if reason.expected is None and reason.got is None:
        return reason.text
    return f"{subject_of(reason)}: {Change(reason.expected, reason.got)}"
