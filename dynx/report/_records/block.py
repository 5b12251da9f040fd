"""`Block`: one part of a record that dynx returns to the user, with a title, a table and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dynx.report._styles import shares


class Block(NamedTuple):
    """One part of a rendered record: a title with a remark, a table, and notes below it.

    Columns whose names begin with `#` hold numbers. A notebook shows `amounts`, one per row, as bars behind the first of them.
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
        """The name of the column that has bars."""
        return next((name for name in self.columns if name.startswith("#")), "")

    @property
    def shares(self) -> list[float]:
        """The amounts as shares of the largest one."""
        return shares(self.amounts)
