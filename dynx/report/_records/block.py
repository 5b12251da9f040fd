"""`Block`: one part of a record that dynx returns to the user, with a title, a table and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PLACE = "asked for at"
PLACES = (PLACE, "where")  # columns of source locations


class Block(NamedTuple):
    """One part of a rendered record: a title with a remark, a table, and notes below it.

    Columns whose names begin with `#` hold numbers.
    """

    title: str
    remark: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    notes: tuple[str, ...] = ()
