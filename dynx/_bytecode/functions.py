"""Find functions in a source file by name, line and text, so that a function is found again after the file was edited."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import textwrap
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


class SourceFunction(NamedTuple):
    """A function or lambda in a source file."""

    name: str  # "forward", "<lambda>"
    qualname: str  # "Block.forward"
    line: int  # the first line, that of the first decorator
    last: int
    digest: str  # of its text without indentation


def file_hash(file: str) -> str:
    """Return the CRC-32 of a file in hexadecimal, which identifies the file in torch's PGO profile; the path if unreadable.

    Torch: `torch._dynamo.pgo._hash_containing_file`, which caches the hash even if the file changes.
    """
    try:
        return format(zlib.crc32(Path(file).read_bytes()), "08x")
    except (OSError, ValueError):
        return file


def functions_in(file: str) -> tuple[SourceFunction, ...]:
    """Return the functions and lambdas of a source file in the order of their lines; none if it cannot be parsed."""
    try:
        return _parsed(Path(file).read_bytes())
    except (OSError, ValueError):
        return ()


@lru_cache(maxsize=256)
def _parsed(content: bytes) -> tuple[SourceFunction, ...]:
    try:
        tree = ast.parse(content)
        lines = importlib.util.decode_source(content).split("\n")  # not splitlines(), which also splits at form feeds
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(sorted(_within(tree, lines, ""), key=lambda function: (function.line, -function.last)))


def _within(node: ast.AST, lines: list[str], prefix: str) -> Iterator[SourceFunction]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            last = child.end_lineno or child.lineno
            if isinstance(child, ast.Lambda):
                name, first = "<lambda>", child.lineno
                content = ast.get_source_segment("\n".join(lines), child) or ""
            else:
                name, first = child.name, min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                content = textwrap.dedent("\n".join(lines[first - 1 : last]))
            digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
            yield SourceFunction(name, f"{prefix}{name}", first, last, digest)
            yield from _within(child, lines, f"{prefix}{name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _within(child, lines, f"{prefix}{child.name}.")
        else:
            yield from _within(child, lines, prefix)


def function_at(functions: tuple[SourceFunction, ...], name: str, line: int) -> SourceFunction | None:
    """Return the innermost function of this name whose lines contain `line`; for two lambdas on one line the first."""
    around = [function for function in functions if function.name == name and function.line <= line <= function.last]
    return max(around, key=lambda function: function.line, default=None)
