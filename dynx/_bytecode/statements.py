"""Statements of a source file, and where each begins in bytecode.

A line is not enough: one statement can span several lines, and its bytecode goes back and forth between them. Here a statement
begins at its first instruction, and again wherever the compiler has put a copy of it (the bodies of `finally`), but not where
a loop or a `with` comes back to its own first line.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

# instructions that belong to no statement though they have a line
PRELUDE = frozenset(
    "CACHE RESUME MAKE_CELL COPY_FREE_VARS RETURN_GENERATOR END_FOR END_SEND POP_ITER END_ASYNC_FOR CLEANUP_THROW "  # noqa: SIM905
    "PUSH_EXC_INFO POP_EXCEPT EXTENDED_ARG".split()
)


class Step(NamedTuple):
    """One instruction, whoever it comes from; lines and columns are None where Python gives none."""

    name: str
    argument: object
    line: int | None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


def step_at(name: str, argument: object, place: Any) -> Step:
    """Make a step of an instruction; `place` has Python's names for positions, or is None."""
    known = argument if isinstance(argument, str) else None
    if place is None or place.lineno is None:
        return Step(name, known, None)
    return Step(name, known, place.lineno, place.end_lineno, place.col_offset, place.end_col_offset)


@dataclass(frozen=True, slots=True)
class Statement:
    """The lines of a statement; of a compound one its header. `body` are the lines of what it repeats or encloses."""

    first: int
    last: int
    body: tuple[int, int] | None = None

    def __contains__(self, line: int | None) -> bool:
        return line is not None and self.first <= line <= self.last


def statement_at(file: str, line: int) -> Statement | None:
    """Find the innermost statement of a file at a line; None for a line without code, or a file without source.

    A line in the middle of a statement belongs to the statement; a decorator's line belongs to its `def`.
    """
    found = [each for each in statements(file) if line in each]
    # of several on one line the outermost comes first: `if x: y`
    return min(found, key=lambda each: each.last - each.first) if found else None


def nearest_line(file: str, line: int) -> int | None:
    """Give the nearest line at which a statement begins; the next one when two are as near."""
    lines = [each.first for each in statements(file)]
    return min(lines, key=lambda each: (abs(each - line), each < line)) if lines else None


def statements(file: str) -> tuple[Statement, ...]:
    """List the statements of a file in the order they begin."""
    return _parse("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _parse(source: str) -> tuple[Statement, ...]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found = [_statement(node) for node in ast.walk(tree) if isinstance(node, ast.stmt) and not _is_docstring(node)]
    return tuple(sorted(found, key=lambda each: (each.first, -each.last)))


def _statement(node: ast.stmt) -> Statement:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    end = node.end_lineno or node.lineno
    body: Sequence[ast.AST] = getattr(node, "body", None) or getattr(node, "cases", None) or ()
    if not body:
        return Statement(first, end)
    inner = getattr(body[0], "lineno", None) or body[0].pattern.lineno  # type: ignore[attr-defined]  # a match_case has none
    inner = min([inner, *(each.lineno for each in getattr(body[0], "decorator_list", ()))])
    return Statement(first, max(first, inner - 1), (inner, end))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def can_hold(code: CodeType, statement: Statement) -> bool:
    """Tell whether a statement may stand in this code; a lambda or comprehension within the statement is a part of it."""
    return code.co_firstlineno not in statement


def beginnings(steps: Sequence[Step], statement: Statement) -> tuple[int, ...]:
    """Give the indices of the instructions at which the statement begins; empty when it has no bytecode here."""
    runs = list(_runs(steps, statement))
    if not runs:
        return ()
    start = steps[runs[0]]
    return tuple(index for index in runs if steps[index] == start and not _comes_back(steps, index, statement))


def entry(steps: Iterable[Step]) -> int | None:
    """Give the index of the first instruction of a function's own code."""
    before: str | None = None
    for index, step in enumerate(steps):
        if step.line is not None and step.name not in PRELUDE and not (step.name == "POP_TOP" and before == "RETURN_GENERATOR"):
            return index
        before = step.name
    return None


def _runs(steps: Sequence[Step], statement: Statement) -> Iterable[int]:
    """Give where bytecode of the statement follows bytecode that is not its own."""
    inside = False
    before: str | None = None
    for index, step in enumerate(steps):
        left_by_loop = step.name in ("POP_TOP", "POP_ITER") and before in ("END_FOR", "FOR_ITER", "SEND", "RETURN_GENERATOR")
        before = step.name
        if step.line is None or step.name in PRELUDE or left_by_loop:
            continue
        if step.line in statement:
            if not inside:
                yield index
            inside = True
        else:
            inside = False


def _comes_back(steps: Sequence[Step], index: int, statement: Statement) -> bool:
    """Tell whether the bytecode before belongs to the statement's own body: the end of a loop, not a new beginning."""
    if statement.body is None:
        return False
    before = next((step.line for step in reversed(steps[:index]) if step.line is not None), None)
    first, last = statement.body
    return before is not None and first <= before <= last
