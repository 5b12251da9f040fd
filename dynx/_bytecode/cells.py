"""Cells, which hold the variables that a function closes over."""

from __future__ import annotations

from types import CellType


def is_filled(cell: CellType) -> bool:
    """Return whether the variable of a cell has a value."""
    try:
        cell.cell_contents  # noqa: B018 - raises if the variable has no value
    except ValueError:
        return False
    return True
