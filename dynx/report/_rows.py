"""A table with columns, rendered a row at a time: `rich.table`, which pads and wraps each cell, takes five times as long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

_GAP = 2  # spaces between columns
_LEAST = 10  # characters of the column that is wrapped; on a terminal that is too narrow for it the last columns are cut


@dataclass(frozen=True, slots=True)
class Rows:
    """Rich renderable of rows of cells in aligned columns, two spaces apart.

    Attributes:
        rows: The cells of each row. All are one line of text, except those of the column `wide`.
        wide: Index of the column that gets what the others leave, and is wrapped.
        left: Indices of other columns that are aligned left.
        first_width: The least width of the first column.
    """

    rows: Sequence[Sequence[Text]]
    wide: int
    left: frozenset[int] = frozenset()
    first_width: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        for row in self.rows:
            lines = self._wrapped(row[self.wide], widths[self.wide], console)
            for number, line in enumerate(lines):
                cells = [line if index == self.wide else cell if number == 0 else _EMPTY for index, cell in enumerate(row)]
                yield from self._line(cells, widths, console)
                yield Segment.line()

    def _widths(self, available: int) -> list[int]:
        """Return the widths of the columns, of which the wide one takes no more than what the others leave."""
        widths = [max(cell.cell_len for cell in column) for column in zip(*self.rows, strict=True)]
        widths[0] = max(widths[0], self.first_width)
        others = sum(width + _GAP for index, width in enumerate(widths) if index != self.wide)
        widths[self.wide] = min(widths[self.wide], max(_LEAST, available - others))
        return widths

    def _wrapped(self, cell: Text, width: int, console: Console) -> Sequence[Text]:
        return [cell] if cell.cell_len <= width else list(cell.wrap(console, width, overflow="fold"))

    def _line(self, cells: Sequence[Text], widths: Sequence[int], console: Console) -> Iterator[Segment]:
        """Yield the segments of one line, without spaces at its end."""
        spaces = 0
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            missing = width - cell.cell_len
            is_left = index == self.wide or index in self.left
            spaces += 0 if is_left else missing
            if cell.plain:
                yield Segment(" " * spaces)
                yield from _segments(cell, console)
                spaces = 0
            spaces += (missing if is_left else 0) + _GAP


_EMPTY = Text("")


def _segments(cell: Text, console: Console) -> Iterator[Segment]:
    """Yield the segments of one line of text; without spans there is one, which needs no search for a style."""
    if cell.spans:
        yield from cell.render(console)
    else:
        yield Segment(cell.plain, console.get_style(cell.style, default="none"))
