"""Insert a statement, such as a setting of torch, after the imports of a file."""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from dynx.fix._rewrites.source import Source, code_of, parse, statement

_SETTINGS = ("torch._dynamo.config.", "torch.compiler.set_stance(", "torch.fx.experimental._config.")


def insert(source: Source, code: str, own: Container[str] = ()) -> Iterator[str]:
    """Yield the text of a file with statements after the imports at its beginning, or after those that begin with torch.

    Code before the first import of torch, such as an environment variable, takes effect first, as it did. If a module of the
    program, one of `own`, is imported after torch, the second text has them before it: it may compile functions already.
    """
    body = list(source.module.body)
    of_any = (index for index, node in enumerate(body) if _imports_any(node, ("torch",)))
    first = next(of_any, int(_is_docstring(body)))
    end = next((index for index in range(first, len(body)) if not _is_import(body[index])), len(body))
    of_torch = next((index + 1 for index in range(first, end) if _imports_torch(body[index])), end)
    of_own = next((index for index in range(of_torch, end) if _imports_any(body[index], own)), end)
    for at in dict.fromkeys((end, of_own)):
        yield _inserted(source, body, at, code)


def with_torch(text: str) -> str:
    """Return the text of a file with `import torch` before its first import of torch, if it has no name `torch`."""
    source = parse(text)
    if source is None or any(map(_imports_torch, source.module.body)):
        return text
    body = list(source.module.body)
    start = int(_is_docstring(body))
    while start < len(body) and _imports_any(body[start], ("__future__",)):
        start += 1
    at = next((index for index in range(start, len(body)) if _imports_any(body[index], ("torch",))), start)
    new = statement("import torch")
    if at < len(body) and _is_import(body[at]):
        new, body[at] = new.with_changes(leading_lines=body[at].leading_lines), body[at].with_changes(leading_lines=())
    return source.module.with_changes(body=[*body[:at], new, *body[at:]]).code


def _inserted(source: Source, body: list[cst.SimpleStatementLine | cst.BaseCompoundStatement], at: int, code: str) -> str:
    has_torch = any(_imports_torch(node) for node in body[:at])
    new = [statement(part.strip()) for part in (*(() if has_torch else ("import torch",)), *code.split(";"))]
    first = at
    while at < len(body) and _is_setting(body[at]):  # of an earlier fix
        at += 1
    if at == first:
        new[0] = new[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    return source.module.with_changes(body=[*body[:at], *new, *body[at:]]).code


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


def _imports_any(node: cst.CSTNode, modules: Container[str]) -> bool:
    """Return whether a statement imports one of some modules, or a module of its own package."""
    for part in node.body if isinstance(node, cst.SimpleStatementLine) else ():
        if isinstance(part, cst.ImportFrom) and (part.relative or (part.module is not None and _root(part.module) in modules)):
            return True
        if isinstance(part, cst.Import) and any(_root(name.name) in modules for name in part.names):
            return True
    return False


def _root(name: cst.BaseExpression) -> str:
    while isinstance(name, cst.Attribute):
        name = name.value
    return name.value if isinstance(name, cst.Name) else ""
