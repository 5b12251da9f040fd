"""Find the function (`Block.forward`), the statement, and the `try`, `with` or loop around a line by parsing its source file.

torch's stacks contain only the name `forward`; a user looks for the qualified name `Block.forward`. Results are cached by file
and `lines`, the number of its lines, so that an edited file is parsed again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from dynx._bytecode.source import all_lines, lines_with
from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.stack import RawFrame

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_USES = 6


class Span(NamedTuple):
    """The first and last line of a function, statement or block; `name` is the keyword of a block, empty for a statement."""

    first: int
    last: int
    name: str

    def covers(self, line: int) -> bool:
        return self.first <= line <= self.last


def qualname_at(file: str, line: int, function: str) -> str:
    """Return the qualified name of the function around a line, such as `Block.forward` if `function` is `forward`.

    If the source cannot be read, or has a function of another name there, return `function` itself.
    """
    enclosing = [span.name for span in _functions(file, len(lines_with(file, line, function))) if span.covers(line)]
    return enclosing[-1] if enclosing and enclosing[-1].rpartition(".")[2] == function else function


def statement_lines(file: str, line: int) -> range:
    """Return the lines of the innermost statement at a line; only `line` itself if no statement is found.

    For a compound statement, such as `if x.isnan():`, these are the lines of its header. They include the first statement of
    its block if that statement fits on one line.
    """
    spans = [span for span in _statements(file, len(all_lines(file))) if span.covers(line)]
    return range(spans[-1].first, spans[-1].last + 1) if spans else range(line, line + 1)


@lru_cache(maxsize=64)
def _statements(file: str, lines: int) -> tuple[Span, ...]:
    """List the statements of a file, outer statements first; `lines`, its number of lines, is only part of the cache key."""
    spans = []
    for node in ast.walk(_parsed(file)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.stmt) and not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            last = body[0] if isinstance(body, list) and body else node
            is_short = last is node or last.end_lineno == last.lineno
            spans.append(Span(node.lineno, (last.end_lineno or last.lineno) if is_short else last.lineno - 1, ""))
    return tuple(sorted(spans, key=lambda span: (span.first, -span.last)))


def lines_of_uses(file: str, line: int) -> tuple[int, ...]:
    """If the statement at `line` assigns a variable, return the next lines (at most 6) of the function that use it."""
    functions = [node for node in _functions_in(file) if node.lineno <= line <= (node.end_lineno or line)]
    if not functions:
        return ()
    inner = max(functions, key=lambda node: node.lineno)
    assigned = {
        target.id
        for node in ast.walk(inner)
        if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or node.lineno)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    uses = {
        node.lineno
        for node in ast.walk(inner)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in assigned and node.lineno > line
    }
    return tuple(sorted(uses)[:_MAX_USES])


def _functions_in(file: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(_parsed(file)) if isinstance(node, _FUNCTIONS)]


def _parsed(file: str) -> ast.Module:
    return _parse(file, len(all_lines(file)))


@lru_cache(maxsize=16)
def _parse(file: str, lines: int) -> ast.Module:
    """Parse a file with this number of lines (part of the cache key); the result is empty if the file is not valid Python."""
    try:
        return ast.parse("".join(all_lines(file) if lines else ()))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


@lru_cache(maxsize=64)
def _functions(file: str, lines: int) -> tuple[Span, ...]:
    """List the functions of a file, outer functions first; `lines`, its number of lines, is only part of the cache key."""
    spans: list[Span] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                name = prefix + child.name
                if not isinstance(child, ast.ClassDef):
                    spans.append(Span(child.lineno, child.end_lineno or child.lineno, name))
                visit(child, name + ".")
            elif isinstance(child, (ast.If, ast.Try, ast.With)):
                visit(child, prefix)

    visit(_parsed(file), "")
    return tuple(spans)


def enclosing_block(stack: Iterable[RawFrame]) -> str | None:
    """Return the keyword of the innermost `try`, `with`, `for` or `while` block around the line of any stack frame, or None.

    Dynamo cannot always resume after a graph break inside of such a block.
    """
    for frame in reversed(tuple(stack)):
        lines = lines_with(frame.file, frame.line, user_name(frame.function))
        enclosing = [span.name for span in _blocks(frame.file, len(lines)) if span.covers(frame.line)]
        if enclosing:
            return enclosing[-1]
    return None


_BLOCKS = {ast.Try: "try", ast.With: "with", ast.AsyncWith: "with", ast.For: "for", ast.While: "while"}


@lru_cache(maxsize=64)
def _blocks(file: str, lines: int) -> tuple[Span, ...]:
    """List the `try`, `with` and loop blocks in the functions of a file, outer blocks first; for `lines` see `_functions`."""
    spans = {
        Span(node.lineno, node.end_lineno or node.lineno, _BLOCKS[type(node)])
        for function in _functions_in(file)
        for node in ast.walk(function)
        if type(node) in _BLOCKS and isinstance(node, ast.stmt)
    }
    return tuple(sorted(spans, key=lambda span: (span.first, -span.last)))
