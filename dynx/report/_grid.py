"""Table for a terminal of any width: long texts are wrapped, and locations `path:line` always keep their line number.

`rich.table`, which pads and crops each cell, takes five times as long and cuts locations at their end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from dynx.report import _wrap as wrap

Kind = Literal["text", "whole", "cut"]
Line = Iterator[tuple[Text, int]]  # cells, each with the number of spaces before it

_GAP = 2  # spaces between columns
_LEAST = (18, 10)  # least widths of wrapped text; the second for narrow terminals
_SHORT = 26  # greatest width of a cell that shares a line with others
_EMPTY = Text("")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: The heading.
        kind: "text" cells are wrapped, "whole" cells stay on one line, "cut" cells end with an ellipsis if they are too long.
        right: Whether the cells are aligned right.
        least: The least width of the column, in characters.
    """

    name: str = ""
    kind: Kind = "text"
    right: bool = False
    least: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """Rich renderable of rows of cells in aligned columns, two spaces apart.

    On a terminal that is too narrow for the columns, each row is a paragraph.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    indent: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - self.indent
        widths = self._widths(width)
        lines = self._paragraphs(width) if widths is None else self._table(widths)
        for line in lines:
            spaces = self.indent
            for cell, before in line:
                spaces += before
                if cell.plain:
                    yield Segment(" " * spaces)
                    yield from _segments(cell, console)
                    spaces = 0
            yield Segment.line()

    def _widths(self, available: int) -> list[int] | None:
        """Return the widths of the columns; None if the columns do not fit into the available width.

        "whole" columns get the width that they need, and the other columns share what is left: none gets more than it needs, or
        less than is readable.
        """
        cells = [[row[index] for row in self.rows] for index in range(len(self.columns))]
        needs = [
            max(column.least, len(column.name), *map(_widest, group)) for column, group in zip(self.columns, cells, strict=True)
        ]
        room = available - _GAP * (len(needs) - 1)
        for least in _LEAST:
            floors = [
                min(need, _floor(column, group, least)) for column, group, need in zip(self.columns, cells, needs, strict=True)
            ]
            if sum(floors) <= room:
                return _shared(floors, needs, room)
        return None

    def _table(self, widths: Sequence[int]) -> Iterator[Line]:
        if any(column.name for column in self.columns):
            yield self._line([Text(column.name, style="dim") for column in self.columns], widths)
        for row in self.rows:
            cells = [_lines(column, cell, width) for column, cell, width in zip(self.columns, row, widths, strict=True)]
            for number in range(max(map(len, cells))):
                yield self._line([lines[number] if number < len(lines) else _EMPTY for lines in cells], widths)

    def _line(self, cells: Sequence[Text], widths: Sequence[int]) -> Line:
        after = 0
        for column, cell, width in zip(self.columns, cells, widths, strict=True):
            missing = width - cell.cell_len
            yield cell, after + (missing if column.right else 0)
            after = _GAP + (0 if column.right else missing)

    def _paragraphs(self, width: int) -> Iterator[Line]:
        """Yield the lines of a paragraph for each row: short cells share a line, each long cell begins a new line."""
        for row in self.rows:
            indent = 0
            cells = [_named(column, cell) for column, cell in zip(self.columns, row, strict=True) if cell.plain]
            for is_short, group in groupby(cells, key=lambda cell: cell.cell_len <= _SHORT):
                for part in [Text("  ").join(group)] if is_short else group:
                    for line in wrap.lines(part, width - _GAP):
                        yield iter([(line, indent)])
                        indent = _GAP


def named(rows: Iterable[tuple[str, Text]], indent: int = 0) -> Grid:
    """Return a table with two columns: names, and a text for each."""
    return Grid((Column(kind="whole"), Column()), [(Text(name, style="dim"), text) for name, text in rows], indent)


def _floor(column: Column, cells: Sequence[Text], least: int) -> int:
    """Return the least width at which a column is readable; `sys.maxsize` for a "whole" column, which cannot be narrowed."""
    return sys.maxsize if column.kind == "whole" else max(least, len(column.name), *map(wrap.least, cells))


def _lines(column: Column, cell: Text, width: int) -> Sequence[Text]:
    if column.kind == "whole":
        return [cell]
    if column.kind != "cut":
        return wrap.lines(cell, width)
    cut = cell.copy()
    cut.truncate(width, overflow="ellipsis")
    return [cut]


def _shared(floors: Sequence[int], needs: Sequence[int], room: int) -> list[int]:
    """Return widths that fill `room`: each column has at least its floor and at most its need; the narrowest grows first."""
    widths = list(floors)
    for _ in range(room - sum(floors)):
        growing = [index for index, need in enumerate(needs) if widths[index] < need]
        if not growing:
            break
        widths[min(growing, key=lambda index: widths[index])] += 1
    return widths


def _widest(cell: Text) -> int:
    return cell.cell_len if "\n" not in cell.plain else max(line.cell_len for line in cell.split("\n"))


def _named(column: Column, cell: Text) -> Text:
    """Put the column's heading before a cell, as in `where: a.py:3`; a short cell gets no-break spaces, to stay on one line."""
    named = Text.assemble((f"{column.name}: ", "dim"), cell) if column.name else cell.copy()
    if named.cell_len <= _SHORT and "\n" not in named.plain:
        named.plain = wrap.unbroken(named.plain)
    return named


def _segments(cell: Text, console: Console) -> Iterator[Segment]:
    """Yield the segments of a line of text, each with one style; a text without spans is one segment, made faster."""
    if cell.spans:
        yield from cell.render(console)
    else:
        yield Segment(cell.plain, console.get_style(cell.style, default="none"))
