"""Read source lines of files, and of a program without a file (run by `dynx run -c code` or `dynx run -`).

Such a program is not added to `linecache`, because its tracebacks and `inspect.getsource` would then show source lines, which
plain Python does not. Its file name `<string>` is also used for other code, such as code passed to `exec`, so a line is
returned only for a function that the program has at this line.
"""

from __future__ import annotations

import linecache
from types import CodeType
from typing import NamedTuple

from dynx._bytecode.globals_read import codes_in


class _Program(NamedTuple):
    lines: list[str]
    covered: frozenset[tuple[str, int]]  # pairs of a function of the program and one of its lines


_PROGRAMS: dict[str, _Program] = {}


def add_program(code: CodeType, source: str) -> None:
    """Store the source of a program without a file; `code` is its compiled code."""
    covered = {(inner.co_name, line) for inner in codes_in(code) for line in _span(inner)}
    _PROGRAMS[code.co_filename] = _Program(source.splitlines(keepends=True), frozenset(covered))


def all_lines(file: str) -> list[str]:
    """Return the source lines of a file, or of a program without a file; empty if they cannot be read."""
    program = _PROGRAMS.get(file)
    return linecache.getlines(file) if program is None else program.lines


def lines_with(file: str, line: int, function: str) -> list[str]:
    """Return all source lines of a file, or of a program without a file; empty if they cannot be read.

    For a program without a file, the result is also empty if `line` is not in a function with the name `function`.
    """
    program = _PROGRAMS.get(file)
    if program is not None and (function.rpartition(".")[2], line) not in program.covered:
        return []
    return all_lines(file)


def line_at(file: str, line: int, function: str) -> str:
    """Return one source line of a function; empty if it cannot be read."""
    lines = lines_with(file, line, function)
    return lines[line - 1] if 1 <= line <= len(lines) else ""


def _span(code: CodeType) -> range:
    """Return the lines of a function, from its first decorator to its last expression."""
    last = max((end for _, end, _, _ in code.co_positions() if end is not None), default=code.co_firstlineno)
    return range(code.co_firstlineno, last + 1)
