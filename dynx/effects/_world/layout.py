"""How objects are laid out in memory: by the built-in class that holds their items, read without running the user's code."""

from __future__ import annotations

import enum
import gc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    NoneType,
    NotImplementedType,
    WrapperDescriptorType,
)
from typing import Any

import torch

ABSENT = object()  # the value of a variable that is not set
_IS_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes that a class statement made, and some of C extensions

CONSTANTS: tuple[Any, ...] = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    NoneType,
    EllipsisType,
    NotImplementedType,
    CodeType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)
CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict, OrderedDict, defaultdict, deque)


def is_constant(value: Any) -> bool:
    """Return whether a value cannot change, or is never copied: numbers, strings, classes, modules, members of an Enum."""
    return type(value) in CONSTANTS or issubclass(type(value), (type, ModuleType, enum.Enum)) or is_function_of_c(value)


def is_function_of_c(value: Any) -> bool:
    """Return whether a value is a function of a module written in C, or a method of a class; not a method of an object."""
    return type(value) is BuiltinFunctionType and (value.__self__ is None or isinstance(value.__self__, (ModuleType, type)))


def built_in_base(cls: type) -> type:
    """Return the built-in class whose layout the objects of a class have, such as `list` for a subclass of list."""
    return next(base for base in cls.__mro__ if is_container(base) or not base.__flags__ & _IS_HEAP_TYPE)


def is_container(cls: type) -> bool:
    """Return whether a class is one of `CONTAINERS`; from Python 3.12 on, deque and defaultdict are heap types too."""
    return any(cls is container for container in CONTAINERS)


_VIEWS: dict[type, Callable[[Any], Any]] = {
    type(make(mapping())): make for mapping in (dict, OrderedDict) for make in (mapping.keys, mapping.values, mapping.items)
}


def view_of(value: Any) -> tuple[Callable[[Any], Any], Any] | None:
    """Return for a view of a dict the method that makes such views, and the dict; None for other objects."""
    make = _VIEWS.get(type(value))
    return None if make is None else (make, gc.get_referents(value)[0])


def slots_of(value: Any) -> Iterator[tuple[str, MemberDescriptorType, Any]]:
    """Yield name, descriptor and value of each of an object's `__slots__` that is set."""
    for cls in type(value).__mro__:
        if "__slots__" not in cls.__dict__:
            continue
        for name, descriptor in cls.__dict__.items():
            if type(descriptor) is MemberDescriptorType:
                try:
                    yield name, descriptor, descriptor.__get__(value, type(value))
                except AttributeError:  # the slot is not set
                    continue


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the `__dict__` of an object, or an empty one."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}
