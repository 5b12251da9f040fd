"""The signature of a callable, the names that the methods of a class read, and the functions that a callable wraps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import _lru_cache_wrapper, cached_property, partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn

from dynx._bytecode.cells import is_filled
from dynx._reading.names import names_in
from dynx._torch.compilation.unwrap import function_of, unwrap

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
    """Return the names of attributes in the code of a class: in these methods, and in the methods that they name."""
    bases = [base for base in kind.__mro__ if not base.__module__.startswith(("torch.", "builtins"))]
    names, pending = set[str](), frozenset(methods)
    while pending:
        found = [vars(base).get(name) for base in bases for name in pending]
        names |= pending
        codes = (inner.__code__ for method in found for inner in _functions_of(method))
        pending = frozenset[str]().union(*(names_in(code).attributes for code in codes)) - names
    return frozenset(names)


def _functions_of(method: Any) -> list[FunctionType]:
    """Return the Python functions of what a class defines under a name: of a method, a property or a class method."""
    for attribute in ("fget", "__func__", "func"):
        method = getattr(method, attribute, method) if isinstance(method, _WRAPPERS) else method
    return plain_functions(method) if isinstance(method, FUNCTIONS) else []


_WRAPPERS = property, classmethod, staticmethod, cached_property


def plain_functions(function: Any) -> list[FunctionType]:
    """Return the Python functions that run when a callable is called: its own and those that it wraps."""
    functions = (function_of(layer.value) for layer in unwrap(function).layers)
    return list(dict.fromkeys(inner for inner in functions if inner is not None))


def levels(function: Any) -> Iterator[Any]:
    """Yield a callable, then each callable that it wraps, from the outermost to the innermost."""
    return (layer.value for layer in unwrap(function).layers)


def bound_objects(function: Any) -> tuple[Any, ...]:
    """Return the objects bound to a callable: `self` of a method, the arguments of a partial, or a callable object itself."""
    if issubclass(type(function), partial):
        return (*function.args, *function.keywords.values())
    if type(function) is MethodType:
        return (function.__self__,)
    return () if issubclass(type(function), FUNCTIONS) else (function,)


def cells_of(function: FunctionType) -> list[CellType]:
    """Return the closure cells of a function that have a value."""
    return [cell for cell in function.__closure__ or () if is_filled(cell)]
