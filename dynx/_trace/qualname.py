"""The full name of the function a line belongs to: torch's stacks say `forward`, a user looks for `Block.forward`."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from functools import lru_cache

from dynx._torch.tracing.stack import RawFrame


def qualname_at(file: str, line: int, function: str) -> str:
    """Give `Class.function` for a line of `file`; `function` itself where the source is not there or disagrees."""
    spans = _spans(file, len(linecache.getlines(file)))
    inner = [name for first, last, name in spans if first <= line <= last]
    return inner[-1] if inner and inner[-1].rpartition(".")[2] == function else function


@lru_cache(maxsize=64)
def _spans(file: str, lines: int) -> tuple[tuple[int, int, str], ...]:
    """List first line, last line and name of every function of a file, outer ones first; `lines` makes an edit a new key."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = prefix + child.name
                if not isinstance(child, ast.ClassDef):
                    found.append((child.lineno, child.end_lineno or child.lineno, name))
                visit(child, name + ".")
            elif isinstance(child, (ast.If, ast.Try, ast.With)):
                visit(child, prefix)

    visit(tree, "")
    return tuple(found)


def enclosing_block(stack: Iterable[RawFrame]) -> str | None:
    """Name the innermost `try`, `with`, `for` or `while` around the lines of a stack; torch cannot go on inside one."""
    for frame in reversed(tuple(stack)):
        blocks = [
            name
            for first, last, name in _blocks(frame.file, len(linecache.getlines(frame.file)))
            if first <= frame.line <= last
        ]
        if blocks:
            return blocks[-1]
    return None


_BLOCKS = {ast.Try: "try", ast.With: "with", ast.AsyncWith: "with", ast.For: "for", ast.While: "while"}


@lru_cache(maxsize=64)
def _blocks(file: str, lines: int) -> tuple[tuple[int, int, str], ...]:
    """List first line, last line and kind of every block inside a function of a file, outer ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = {
        (node.lineno, node.end_lineno or node.lineno, _BLOCKS[type(node)])
        for function in functions
        for node in ast.walk(function)
        if type(node) in _BLOCKS and isinstance(node, ast.stmt)
    }
    return tuple(sorted(found, key=lambda block: (block[0], -block[1])))
