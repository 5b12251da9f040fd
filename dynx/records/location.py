"""`Location`: a line of source code, with the user's line that called it; `CodeLine`: a line of the code of an FX graph."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class Location(Record):
    """A line of source code, with its file and function, and where known its columns.

    `library` is the name of the installed package if the file belongs to one; `caller` is then the innermost line of the
    user's own code in the call stack. Columns are 0-based offsets in UTF-8 bytes, as in `code.co_positions()`.
    """

    file: str
    line: int
    function: str
    column: int | None = None
    end_column: int | None = None
    library: str | None = None
    caller: Location | None = None

    @property
    def own(self) -> Location:
        """The line of the user's own code: this location, or its `caller` if this one is in a library."""
        return self.caller if self.library is not None and self.caller is not None else self

    def __str__(self) -> str:
        text = f"{short_path(self.file)}:{self.line} in {self.function}"
        if self.library is None:
            return text
        called = f", called from {self.caller}" if self.caller is not None else ""
        return f"{text} ({self.library}){called}"


@dataclass(frozen=True, slots=True)
class CodeLine(Record):
    """One line of the Python code of an FX graph, with the user's line that it was traced from."""

    text: str
    location: Location | None = None  # None for the signature and the return statement


def short_path(file: str) -> str:
    """Return the path relative to the working directory if this is shorter, else the path as it is.

    For a cell of a notebook in this process, return the name of the cell: `In [2]`.
    """
    if (cell := _cell(file)) is not None:
        return cell
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # deleted working directory, another drive
        return file
    return relative if len(relative) < len(file) else file


def _cell(file: str) -> str | None:
    """Return the name of the cell that IPython compiled under a file name; None for other files.

    IPython 8.0 and later map file names to cell numbers in `CachingCompiler._filename_map`.
    """
    ipython = sys.modules.get("IPython")
    shell: Any = getattr(ipython, "get_ipython", lambda: None)()
    number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
    return None if number is None else f"In [{number}]"
