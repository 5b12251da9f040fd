"""Read the code of callables: their signature, the functions that they wrap, and the names that code reads and assigns."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import _lru_cache_wrapper, cached_property, partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from torch import nn

from dynx._bytecode.cells import is_filled
from dynx._reading.names import names_in
from dynx._torch.compilation.unwrap import function_of, unwrap
from dynx.records.location import short_path

FUNCTIONS = FunctionType, MethodType, partial, _lru_cache_wrapper


def name_of(function: Callable[..., Any]) -> str:
    try:
        return getattr(function, "__name__", type(function).__name__)
    except Exception:  # noqa: BLE001  # of an object that looks up attributes in its own way
        return type(function).__name__


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except Exception:  # noqa: BLE001  # also of an object that looks up attributes in its own way
        return None


def names_of_class(kind: type, methods: Iterable[str] = ("forward", "__call__")) -> frozenset[str]:
    """Return the names of attributes used in `methods` of a class, and in other methods of the class that these refer to."""
    bases = _bases(kind)
    names, pending = set[str](), frozenset(methods)
    while pending:
        found = [vars(base).get(name) for base in bases for name in pending]
        names |= pending
        codes = (inner.__code__ for method in found for inner in _functions_of(method))
        pending = frozenset[str]().union(*(names_in(code).attributes for code in codes)) - names
    return frozenset(names)


def module_of(kind: type) -> str:
    """Return the name of the module of a class; "" if `__module__` is not a string, as in classes of Cython."""
    name = kind.__module__
    return name if isinstance(name, str) else ""


def _bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if not module_of(base).startswith(("torch.", "builtins"))]


def _functions_of(method: Any) -> list[FunctionType]:
    """Return the Python functions behind an attribute of a class: a method, property, class method or static method."""
    for attribute in ("fget", "__func__", "func"):
        method = getattr(method, attribute, method) if isinstance(method, _WRAPPERS) else method
    return plain_functions(method) if isinstance(method, FUNCTIONS) else []


_WRAPPERS = property, classmethod, staticmethod, cached_property


def plain_functions(function: Any) -> list[FunctionType]:
    """Return the Python functions that run in a call of `function`: those of its decorators, and the decorated function."""
    functions = (function_of(layer.value) for layer in unwrap(function).layers)
    return list(dict.fromkeys(inner for inner in functions if inner is not None))


def bound_objects(function: Any) -> tuple[Any, ...]:
    """Return the objects bound to a callable: `self` of a method, the arguments of a partial, or a callable object itself."""
    if issubclass(type(function), partial):
        return (function.func, *function.args, *function.keywords.values())
    if type(function) is MethodType:
        return (function.__self__,)
    return () if issubclass(type(function), FUNCTIONS) else (function,)


def cells_of(function: FunctionType) -> list[CellType]:
    """Return the closure cells of a function that have a value, without the cell `__class__`, which `super()` reads."""
    named = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [cell for name, cell in named if name != "__class__" and is_filled(cell)]


def functions_of_class(kind: type) -> list[FunctionType]:
    """Return the functions that a class and its bases define, except bases of torch and Python."""
    return [value for base in _bases(kind) for value in vars(base).values() if type(value) is FunctionType]


def where_assigned(name: str, functions: Iterable[FunctionType]) -> str:
    """Return the line that assigns a variable, attribute or dict item, as " (file:line in function)"; "" if there is none."""
    for code in (code for function in functions for code in _codes(function.__code__) if name):
        if code.co_filename == "<string>":  # code that dataclass or namedtuple generated
            continue
        if (line := _line_of(name, code)) is not None:
            return f" ({short_path(code.co_filename)}:{line} in {code.co_qualname})"
    return ""


def _line_of(name: str, code: CodeType) -> int | None:
    """Return the line where code assigns a variable, attribute, or element of a dict with this name; None if it does not."""
    steps = [(step, step.positions.lineno if step.positions is not None else None) for step in dis.get_instructions(code)]
    of_elements = {line for step, line in steps if step.opname == "STORE_SUBSCR"}
    for step, line in steps:
        if step.argval == name and (step.opname in _STORES or (step.opname == "LOAD_CONST" and line in of_elements)):
            return line
    return None


_STORES = "STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
