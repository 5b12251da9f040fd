"""Read what is in containers, variables and attributes, without calling methods of users' classes."""

from __future__ import annotations

import gc
import threading
import types
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partialmethod
from operator import attrgetter, itemgetter, methodcaller
from typing import Any

import torch
from torch import nn

from dynx._reading.owner import owner_of_module

Values = tuple[Any, ...]
Scope = dict[str, Any] | types.MappingProxyType[str, Any]  # attributes of an object, a module or a class; globals

HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"
OF_C = frozenset(  # types of functions and attributes of C code, which do not change
    (
        *(types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType),
        *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
    )
)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_VIEWS: tuple[type, ...] = type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType


def content_reader(container: Any) -> Callable[[], Values]:
    """Return a function that reads the length of a container and all its elements, for a dict also the keys."""
    if isinstance(container, dict):
        return lambda: (len(container), *container, *container.values())
    return lambda: (len(container), *container)


def used_reader(container: Any) -> Callable[[], Values]:
    """Return a function that reads parts of a long container, to save time: its length, and its modules and tensors."""
    if isinstance(container, dict):
        keys = sorted((key for key, value in tuple(container.items()) if is_used(value)), key=_sort_key)
        return lambda: (len(container), *map(container.get, keys))
    indices = [index for index, value in enumerate(tuple(container)) if is_used(value)]
    return lambda: (len(container), *(container[index] for index in indices if index < len(container)))


def _sort_key(key: Any) -> tuple[str, Any]:
    return type(key).__name__, key if type(key) in (str, int) else id(key)


def cell_content(cell: Any) -> Values:
    return (cell.cell_contents,)


def attribute(owner: Any, name: str) -> Values:
    return (getattr(owner, name),)


def item(scope: Scope, name: str) -> Values:
    return (scope.get(name),)


def slot(descriptor: Any, owner: Any) -> Values:
    try:
        return (descriptor.__get__(owner, type(owner)),)
    except AttributeError:  # the slot has no value; `__getattr__` of the object is not called, since it may compute one
        return (None,)


def absence_check(absent: Sequence[tuple[Scope, Set[str]]]) -> Callable[[], bool] | None:
    """Return a predicate that is true while the dicts in `absent` lack the names paired with them; None if there are no names.

    A dict keeps the order of its names: if its length and its last name are as in the check before, no name was added.
    """
    absent = [(scope, names) for scope, names in absent if names]
    if not absent:
        return None
    scopes = [scope for scope, _ in absent]
    full, lengths, last = _ends_of(scopes)

    def are_absent() -> bool:
        nonlocal full, lengths, last
        try:
            if list(map(len, scopes)) == lengths and _last_of(full) == last:
                return True
            if not all(names.isdisjoint(tuple(scope)) for scope, names in absent):
                return False
            full, lengths, last = _ends_of(scopes)
        except RuntimeError:  # another thread adds a name now
            return False
        return True

    return are_absent


def _ends_of(scopes: Sequence[Scope]) -> tuple[list[Scope], list[int], list[str]]:
    """Return the non-empty dicts, the lengths of all dicts, and the last names of the non-empty dicts, for `absence_check`."""
    full = [scope for scope in scopes if scope]
    return full, list(map(len, scopes)), _last_of(full)


def _last_of(scopes: Iterable[Any]) -> list[str]:
    return list(map(next, map(reversed, scopes)))  # StopIteration ends the list early where one has become empty


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the `__dict__` of an object without calling `__getattribute__` of its class; None if it has none."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return attributes if type(attributes) is dict else None


def hooks_of(module: nn.Module) -> list[Any]:
    """Return the forward and backward hooks and pre-hooks of a module."""
    return [hook for name in HOOKS for hook in vars(module).get(name, {}).values()]


def values_of_thread(value: threading.local) -> dict[str, Any]:
    """Return the attributes that a `threading.local` has in this thread."""
    attributes: dict[str, Any] = threading.local.__getattribute__(value, "__dict__")
    return attributes


def value_of_thread(owner: threading.local, name: str) -> Values:
    return (values_of_thread(owner).get(name),)


def parts_behind(value: Any) -> Values:
    """Return the objects inside a built-in method, partialmethod, dict view, generic alias, memoryview or generator."""
    kind = type(value)
    if kind in (types.BuiltinFunctionType, types.MethodWrapperType):
        return () if isinstance(value.__self__, (types.ModuleType, type, type(None))) else (value.__self__,)
    if kind is partialmethod:
        return value.func, value.args, value.keywords
    if kind in _VIEWS:
        return tuple(gc.get_referents(value)[:1])
    if kind is types.GenericAlias or kind.__module__ == "typing":
        return (value.__origin__,) if hasattr(value, "__origin__") else ()
    if kind is memoryview:
        return (value.obj,)
    if kind is types.GeneratorType and value.gi_frame is not None:
        return tuple(value.gi_frame.f_locals.values())
    return ()


def names_read_by(value: Any) -> set[str]:
    """Return the names that an `attrgetter`, `itemgetter` or `methodcaller` looks up."""
    if type(value) not in (attrgetter, itemgetter, methodcaller):
        return set()
    texts = (text for text in value.__reduce__()[1] if isinstance(text, str))
    return {part for text in texts for part in text.split(".")}


def is_mutable(kind: type) -> bool:
    """Return whether attributes of a class can be assigned; False for static types of C code."""
    return bool(kind.__flags__ & _HEAP_TYPE)


def is_of_library(value: Any) -> bool:
    """Return whether a value is a Python module of torch, dynx, Python or another library, not one that the user wrote."""
    return issubclass(type(value), types.ModuleType) and owner_of_module(value) != "user"


def is_used(value: Any) -> bool:
    return issubclass(type(value), (nn.Module, torch.Tensor))
