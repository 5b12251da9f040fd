"""`Block`: a part of a result of dynx, as it is shown to the user: a title, a table and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Block(NamedTuple):
    """A part of a result as it is shown: a title with a remark, a table, and notes below the table.

    Columns whose names begin with `#` hold numbers. A notebook shows `amounts`, one per row, as bars in the first such column.
    """

    title: str
    remark: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    notes: tuple[str, ...] = ()
    amounts: Sequence[float] = ()
    is_whole: bool = False  # a terminal shows all rows

    @property
    def amount(self) -> str:
        """The name of the column with bars in a notebook: the first column of numbers."""
        return next((name for name in self.columns if name.startswith("#")), "")

    @property
    def shares(self) -> list[float]:
        """The amounts divided by the largest amount: the lengths of the bars."""
        largest = max(self.amounts, default=0.0) or 1.0
        return [amount / largest for amount in self.amounts]
