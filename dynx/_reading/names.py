"""The names in a code object: variables and attributes that it reads, globals that it assigns, modules that it imports."""

from __future__ import annotations

import dis
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from importlib.util import resolve_name
from itertools import chain
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_READ = ("LOAD_GLOBAL", "LOAD_NAME")
_ASSIGNED = ("STORE_GLOBAL", "DELETE_GLOBAL")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_SET_ATTRIBUTES = ("STORE_ATTR", "DELETE_ATTR")


class Import(NamedTuple):
    """An `import` statement inside of a function."""

    name: str
    level: int  # number of leading dots
    names: tuple[str, ...]  # of `from name import names`


class Names(NamedTuple):
    """The names in a code object, including those in nested functions, generators and classes."""

    variables: frozenset[str]
    attributes: frozenset[str]
    set_attributes: frozenset[str]  # that the code assigns or deletes
    assigned: frozenset[str]  # globals that the code assigns or deletes
    imports: frozenset[Import]
    texts: frozenset[str]  # constants that are names, with dots or without, as in `getattr(module, "limit")`


@lru_cache(4096)
def names_in(code: CodeType) -> Names:
    """Return the names in a code object and in the code objects nested in it."""
    steps = [(step.opname, step.argval) for step in dis.get_instructions(code)]
    inner = [names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    imports = [
        Import(name, level, tuple(names or ()))
        for (_, level), (_, names), (opname, name) in zip(steps, steps[1:], steps[2:], strict=False)
        if opname == "IMPORT_NAME"
    ]
    return Names(
        _union(_named(steps, _READ), *(names.variables for names in inner)),
        _union(_named(steps, _ATTRIBUTES), *(names.attributes for names in inner)),
        _union(_named(steps, _SET_ATTRIBUTES), *(names.set_attributes for names in inner)),
        _union(_named(steps, _ASSIGNED), *(names.assigned for names in inner)),
        _union(imports, *(names.imports for names in inner)),
        _union(filter(_is_name, code.co_consts), *(names.texts for names in inner)),
    )


def _named(steps: Iterable[tuple[str, Any]], opnames: Collection[str]) -> Iterator[str]:
    return (name for opname, name in steps if opname in opnames)


def _union(*parts: Iterable[T]) -> frozenset[T]:
    return frozenset(chain.from_iterable(parts))


def _is_name(constant: Any) -> bool:
    return type(constant) is str and all(part.isidentifier() for part in constant.split("."))


def modules_named_in(function: FunctionType) -> Iterator[ModuleType]:
    """Yield the loaded modules that a function imports, or whose names are string constants in the function."""
    names = names_in(function.__code__)
    for text in names.texts:
        if isinstance(module := sys.modules.get(text), ModuleType):
            yield module
    for statement in names.imports:
        try:
            relative = "." * statement.level + statement.name
            full = resolve_name(relative, function.__globals__.get("__package__") or "") if statement.level else relative
        except ImportError:  # a relative import outside of a package
            continue
        parts = full.split(".")
        outer = [".".join(parts[: end + 1]) for end in range(len(parts))]
        for name in (*outer, *(f"{full}.{name}" for name in statement.names)):
            if isinstance(module := sys.modules.get(name), ModuleType):
                yield module
