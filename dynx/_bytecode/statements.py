"""Map each statement of a source file to the bytecode instructions at which it begins.

A line number is not enough: one statement can span several lines, and its bytecode switches back and forth between them. In
this module a statement begins at its first instruction, and again at each copy of it that the compiler emits (the body of
`finally`), but not where a loop or a `with` returns to its own first line.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple, Protocol

# instructions that do not belong to a statement although they have a line number
PRELUDE = frozenset(
    "CACHE RESUME MAKE_CELL COPY_FREE_VARS RETURN_GENERATOR END_FOR END_SEND POP_ITER END_ASYNC_FOR CLEANUP_THROW "  # noqa: SIM905
    "PUSH_EXC_INFO POP_EXCEPT EXTENDED_ARG".split()
)


class Step(NamedTuple):
    """One bytecode instruction, as read by `dis`, `bytecode` or Dynamo; lines and columns that are unknown are None."""

    name: str
    argument: object
    line: int | None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


class Positions(Protocol):
    """The source range of an instruction, with the attribute names of `dis.Positions` and the `bytecode` library."""

    @property
    def lineno(self) -> int | None: ...
    @property
    def end_lineno(self) -> int | None: ...
    @property
    def col_offset(self) -> int | None: ...
    @property
    def end_col_offset(self) -> int | None: ...


def step_at(name: str, argument: object, positions: Positions | None) -> Step:
    """Build a `Step` from the parts of an instruction; an argument that is not a string is replaced by None."""
    text = argument if isinstance(argument, str) else None
    if positions is None or positions.lineno is None:
        return Step(name, text, None)
    return Step(name, text, positions.lineno, positions.end_lineno, positions.col_offset, positions.end_col_offset)


@dataclass(frozen=True, slots=True)
class Statement:
    """The lines of a statement, or of the header of a compound statement such as `if`; `body` has the lines of its block."""

    first: int
    last: int
    body: tuple[int, int] | None = None

    def __contains__(self, line: int | None) -> bool:
        return line is not None and self.first <= line <= self.last


def statement_at(file: str, line: int) -> Statement | None:
    """Return the innermost statement of a file that contains a line; None if the line has no code or the file has no source.

    Every line of a multi-line statement belongs to it; the line of a decorator belongs to its `def`.
    """
    enclosing = [statement for statement in statements(file) if line in statement]
    # if several statements begin on one line (`if x: y`), the outermost is listed first
    return min(enclosing, key=lambda statement: statement.last - statement.first) if enclosing else None


def nearest_line(file: str, line: int) -> int | None:
    """Return the line nearest to `line` at which a statement of the file begins; the later line if two are equally near."""
    lines = [statement.first for statement in statements(file)]
    return min(lines, key=lambda first: (abs(first - line), first < line)) if lines else None


def statements(file: str) -> tuple[Statement, ...]:
    """List all statements of a file, nested ones included, in the order in which they begin."""
    return _parse("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _parse(source: str) -> tuple[Statement, ...]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    parsed = [_statement(node) for node in ast.walk(tree) if isinstance(node, _STATEMENTS) and not _is_docstring(node)]
    return tuple(sorted(parsed, key=lambda statement: (statement.first, -statement.last)))


_STATEMENTS = ast.stmt, ast.ExceptHandler, ast.match_case  # the headers `except E:` and `case 1:` have code of their own


def _statement(node: ast.AST) -> Statement:
    body: Sequence[ast.AST] = getattr(node, "body", None) or getattr(node, "cases", None) or ()
    last = body[-1] if body else node
    first, end = _first_line(node), getattr(node, "end_lineno", None) or last.end_lineno or last.lineno  # type: ignore[attr-defined]
    if not body:
        return Statement(first, end)
    inner = _first_line(body[0])
    return Statement(first, max(first, inner - 1), (inner, end))


def _first_line(node: Any) -> int:
    """Return the line at which a statement begins, decorators included; a `case` begins with its pattern."""
    lines = [node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno]
    return int(min([*lines, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def can_hold(code: CodeType, statement: Statement) -> bool:
    """Return whether a code object may contain a statement; False if it begins inside the statement, as a lambda does."""
    return code.co_firstlineno not in statement


def beginnings(steps: Sequence[Step], statement: Statement) -> tuple[int, ...]:
    """Return the indices of the instructions at which the statement begins; empty if none of `steps` belongs to it.

    There are several if the compiler duplicated the statement, as it does for `finally`.
    """
    starts = list(_run_starts(steps, statement))
    if not starts:
        return ()
    start = steps[starts[0]]
    return tuple(index for index in starts if steps[index] == start and not _follows_own_body(steps, index, statement))


def body_start(steps: Iterable[Step]) -> int | None:
    """Return the index of the first instruction of a function's body, after setup such as `RESUME`; None if it has no body."""
    before: str | None = None
    for index, step in enumerate(steps):
        if step.line is not None and step.name not in PRELUDE and not (step.name == "POP_TOP" and before == "RETURN_GENERATOR"):
            return index
        before = step.name
    return None


def _run_starts(steps: Sequence[Step], statement: Statement) -> Iterable[int]:
    """Yield the first index of each run of consecutive instructions that belong to the statement."""
    inside = False
    before: str | None = None
    for index, step in enumerate(steps):
        left_by_loop = step.name in ("POP_TOP", "POP_ITER") and before in ("END_FOR", "FOR_ITER", "SEND", "RETURN_GENERATOR")
        before = step.name
        if step.line is None or step.name in PRELUDE or left_by_loop:
            continue
        was_inside, inside = inside, step.line in statement
        if inside and not was_inside:
            yield index


def _follows_own_body(steps: Sequence[Step], index: int, statement: Statement) -> bool:
    """Return whether the instruction before `index` is in the statement's block, as where a loop returns to its first line."""
    if statement.body is None:
        return False
    before = next((step.line for step in reversed(steps[:index]) if step.line is not None), None)
    first, last = statement.body
    return before is not None and first <= before <= last
