"""The full name of the function a line belongs to: torch's stacks say `forward`, a user looks for `Block.forward`."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache


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
