"""Replace checks of a tensor's value, which break the graph, by `torch._assert_async`, which raises RuntimeError."""

from __future__ import annotations

import re
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
        if is_short_circuit(found.test) or _is_caught(source, "AssertionError"):
            continue
        message = _message(found.msg, otherwise=f"not {code_of(found.test)}")
        new = statement(f"torch._assert_async({condition_of(found.test)}, {message})")
        yield source.replaced(found, new.body[0])


def _branch(source: Source, found: cst.If) -> Iterator[str]:
    if found.orelse is not None or isinstance(source.parent(found), cst.If):
        return
    parts = [part for each in simple_body(found.body) or () for part in each.body]
    split = parts_of(found.test)
    if len(parts) != 1 or not isinstance(parts[0], cst.Raise) or split is None or _is_caught(source, _class_of(parts[0])):
        return
    guard, test = split
    if guard is None or isinstance(found.body, cst.IndentedBlock):
        line = f"torch._assert_async({negated(test)}, {_message(_raised(parts[0]), otherwise=code_of(found.test))})"
        yield source.replaced(found, in_place_of(found, guard, [line]))


def _class_of(node: cst.Raise) -> str:
    """Return the name of the class of a raised exception, without its module; empty if there is none."""
    raised = node.exc.func if isinstance(node.exc, cst.Call) else node.exc
    return code_of(raised).rpartition(".")[2] if raised is not None else ""


def _is_caught(source: Source, name: str) -> bool:
    """Return whether an `except` of the file names the class: it would no longer catch what is raised."""
    caught = [code_of(handler.type) for handler in source.nodes(cst.ExceptHandler) if handler.type is not None]
    return any(re.search(rf"\b{re.escape(name)}\b", text) for text in caught) if name else False


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
