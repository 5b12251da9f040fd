"""Replace checks of a tensor's value, which break the graph, by `torch._assert_async`, which raises RuntimeError."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst as cst

from dynx._rewrites.branch import condition_of, in_place_of, is_short_circuit, negated, parts_of, simple_body
from dynx._rewrites.source import Source, code_of, statement


def check(source: Source, line: int) -> Iterator[str]:
    """Yield the text of a file with `torch._assert_async` in place of an `assert`, or an `if` that only raises, at a line."""
    if (branch := source.if_at(line)) is not None:
        yield from _branch(source, branch)
    for found in source.at_line(cst.Assert, line):
        if is_short_circuit(found.test):
            continue
        message = _message(found.msg, otherwise=f"not {code_of(found.test)}")
        new = statement(f"torch._assert_async({condition_of(found.test)}, {message})")
        yield source.replaced(found, new.body[0])


def _branch(source: Source, found: cst.If) -> Iterator[str]:
    if found.orelse is not None or isinstance(source.parent(found), cst.If):
        return
    parts = [part for each in simple_body(found.body) or () for part in each.body]
    split = parts_of(found.test)
    if len(parts) != 1 or not isinstance(parts[0], cst.Raise) or split is None:
        return
    guard, test = split
    if guard is None or isinstance(found.body, cst.IndentedBlock):
        line = f"torch._assert_async({negated(test)}, {_message(_raised(parts[0]), otherwise=code_of(found.test))})"
        yield source.replaced(found, in_place_of(found, guard, [line]))


def _raised(node: cst.Raise) -> cst.BaseExpression | None:
    """Return the first argument of the exception in a `raise` statement, or None."""
    return node.exc.args[0].value if isinstance(node.exc, cst.Call) and node.exc.args else None


def _message(node: Any, otherwise: str) -> str:
    """Return the code of a constant string for the message `node`, which may be an f-string: its values become "…".

    If `node` is None, the message is `otherwise`.
    """
    if isinstance(node, cst.SimpleString) and node.prefix == "":
        return code_of(node)
    if isinstance(node, cst.FormattedString):
        return repr("".join(part.value if isinstance(part, cst.FormattedStringText) else "…" for part in node.parts))
    return repr(otherwise if node is None else code_of(node))
