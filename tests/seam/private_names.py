"""Find the private names of torch that a source file uses: those that it imports, and attributes of what it imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any


def private_names(source: str) -> dict[str, int]:
    """Return each private name, as a dotted path, with the first line that uses it.

    A path ends at the first object that is neither a module nor a class: of `convert_frame.compile_lock.acquire` the method of
    the lock is not torch's. Attributes of values that torch passes to dynx cannot be found this way.
    """
    names: dict[str, int] = {}
    for path, line in _paths(ast.parse(source)):
        path = _without_instance_attributes(path)
        if is_private(path):
            names[path] = min(line, names.get(path, line))
    return names


def is_private(path: str) -> bool:
    parts = path.split(".")
    private = any(part.startswith("_") and not part.endswith("__") for part in parts)
    return parts[0] == "torch" and (private or path.startswith("torch.fx.experimental"))


def _paths(node: ast.AST, imported: dict[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """Yield the dotted paths that a scope uses, and those of the functions and classes in it, which see its imports."""
    imported = dict(imported or {})
    own = list(_nodes_of_scope(node))
    for inner in own:
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                imported[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                yield alias.name, inner.lineno
        elif isinstance(inner, ast.ImportFrom) and inner.module and not inner.level:
            for alias in inner.names:
                imported[alias.asname or alias.name] = f"{inner.module}.{alias.name}"
                yield f"{inner.module}.{alias.name}", inner.lineno
    for inner in own:
        path = _dotted(inner)
        if path is None and isinstance(inner, ast.Call):
            path = _read_by_name(inner)
        if path is not None and path.partition(".")[0] in imported:
            root, dot, rest = path.partition(".")
            yield imported[root] + dot + rest, inner.lineno
        if inner is not node and isinstance(inner, _SCOPES):
            yield from _paths(inner, imported)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _nodes_of_scope(scope: ast.AST) -> Iterator[ast.AST]:
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, _SCOPES):
            todo += ast.iter_child_nodes(node)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


def _read_by_name(call: ast.Call) -> str | None:
    """Return the path that `getattr(torch_object, "name")` or `hasattr` reads."""
    if isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr") and isinstance(call.args[1], ast.Constant):
        inner = _dotted(call.args[0])
        return None if inner is None else f"{inner}.{call.args[1].value}"
    return None


def _without_instance_attributes(path: str) -> str:
    parts = path.split(".")
    value: Any = sys.modules.get(parts[0])
    for length, part in enumerate(parts[1:], 2):
        if not isinstance(value, (ModuleType, type)) or (part.startswith("__") and part.endswith("__")):
            return ".".join(parts[: length - 1])
        value = _attribute(value, part, ".".join(parts[:length]))
        if value is None:  # this torch lacks it: the name counts as it is written
            return path
    return path


def _attribute(value: Any, name: str, path: str) -> Any:
    if isinstance(value, ModuleType) and not hasattr(value, name):
        try:
            return import_module(path)
        except ImportError:
            return None
    return getattr(value, name, None)
