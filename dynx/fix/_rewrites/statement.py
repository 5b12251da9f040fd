"""Insert a statement, such as a setting of torch, after the imports of a file."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx.fix._rewrites.source import Source, code_of, statement

_SETTINGS = ("torch._dynamo.config.", "torch.compiler.set_stance(", "torch.fx.experimental._config.")


def insert(source: Source, code: str) -> Iterator[str]:
    """Yield the text of a file with statements after its last import, or after its docstring if it imports nothing."""
    body = list(source.module.body)
    imports = [index for index, node in enumerate(body) if _is_import(node)]
    at = imports[-1] + 1 if imports else int(_is_docstring(body))
    has_torch = any(_imports_torch(node) for node in body[:at])
    new = [statement(part.strip()) for part in (*(() if has_torch else ("import torch",)), *code.split(";"))]
    first = at
    while at < len(body) and _is_setting(body[at]):  # of an earlier fix
        at += 1
    if at == first:
        new[0] = new[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    yield source.module.with_changes(body=[*body[:at], *new, *body[at:]]).code


def _is_setting(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and code_of(node.body[0]).startswith(_SETTINGS)


def _is_import(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and any(
        isinstance(part, (cst.Import, cst.ImportFrom)) for part in node.body
    )


def _is_docstring(body: list[cst.SimpleStatementLine | cst.BaseCompoundStatement]) -> bool:
    if not body or not isinstance(body[0], cst.SimpleStatementLine):
        return False
    first = body[0].body[0]
    return isinstance(first, cst.Expr) and isinstance(first.value, (cst.SimpleString, cst.ConcatenatedString))


def _imports_torch(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    names = [name for part in node.body if isinstance(part, cst.Import) for name in part.names]
    return any(_root(name.name) == "torch" and name.asname is None for name in names)


def _root(name: cst.BaseExpression) -> str:
    while isinstance(name, cst.Attribute):
        name = name.value
    return name.value if isinstance(name, cst.Name) else ""
