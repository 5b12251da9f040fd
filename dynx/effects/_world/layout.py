"""Classify objects and read their attributes without calling the user's code, such as an overridden `__getattribute__`."""

from __future__ import annotations

import enum
import gc
import re
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    NoneType,
    NotImplementedType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any
from weakref import WeakKeyDictionary

import torch

from dynx._reading.owner import owner_of_class

_IS_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes of `class` statements, and some classes of C extensions

CONSTANTS: tuple[Any, ...] = (
    *(bool, int, float, complex, str, bytes, range, slice, NoneType, EllipsisType, NotImplementedType, CodeType),
    *(GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType, GenericAlias, UnionType),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    object,  # a sentinel, which is compared by identity
)
CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict, OrderedDict, defaultdict, deque)
# immutable built-in classes, and the function that reads the value from an instance of a subclass
NUMBERS_AND_TEXT: dict[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}
# modules whose objects exist once in a process: compiler caches, devices, process groups, operators
_OF_TORCH = (
    *("torch._dynamo", "torch._inductor", "torch._C", "torch.cuda", "torch.distributed", "torch._ops", "torch._library"),
    "pybind11_builtins",
)
_TYPING = ("typing", "typing_extensions")
OF_LOGGERS = ("level", "handlers", "filters", "disabled", "propagate")  # attributes that programs set
# attributes that torch.compile adds
OF_COMPILATION = re.compile(r"__?dynamo_|_torchdynamo_|_compiled_call_impl$|_is_torch_compile")


def is_constant(value: Any) -> bool:
    """Return whether a value is immutable, or must not be copied: a number, string, class, module, or member of an Enum."""
    return is_class_of_constants(type(value)) or is_function_of_c(value)


def is_class_of_constants(cls: type) -> bool:
    """Return whether `is_constant` is true for all objects of a class."""
    return cls in CONSTANTS or issubclass(cls, (type, ModuleType, enum.Enum)) or cls.__module__ in _TYPING


def is_of_torch(value: Any) -> bool:
    """Return whether a value is an object of torch that exists once in a process, such as a cache or a process group."""
    return is_class_of_torch(type(value))


def is_class_of_torch(cls: type) -> bool:
    """Return whether `is_of_torch` is true for the objects of a class."""
    return cls.__module__.startswith(_OF_TORCH) and not issubclass(cls, (torch.nn.Module, torch.Tensor))


def is_user_defined(cls: type) -> bool:
    """Return whether a class is defined in the user's code."""
    return bool(cls.__flags__ & _IS_HEAP_TYPE) and owner_of_class(cls) == "user"


def is_function_of_c(value: Any) -> bool:
    """Return whether a value is a built-in function such as `math.sin` or `dict.fromkeys`, not a method such as `[].append`."""
    return type(value) is BuiltinFunctionType and (value.__self__ is None or isinstance(value.__self__, (ModuleType, type)))


_bases: WeakKeyDictionary[type, type] = WeakKeyDictionary()


def built_in_base(cls: type) -> type:
    """Return the base class that defines the memory layout of a class in C, such as `list` for a subclass of list."""
    if cls not in _bases:
        _bases[cls] = next(base for base in cls.__mro__ if _is_container(base) or _is_of_c(base))
    return _bases[cls]


def _is_of_c(cls: type) -> bool:
    """Return whether a class is defined in C: it is a static type, or has methods or attributes of C code."""
    if not cls.__flags__ & _IS_HEAP_TYPE:
        return True
    has_slots = "__slots__" in vars(cls)
    of_c = (MethodDescriptorType, WrapperDescriptorType, *(() if has_slots else (MemberDescriptorType,)))
    return any(
        (isinstance(value, of_c) or (type(value) is GetSetDescriptorType and name not in ("__dict__", "__weakref__")))
        and value.__objclass__ is cls
        for name, value in tuple(vars(cls).items())
    )


def _is_container(cls: type) -> bool:
    """Return whether a class is one of `CONTAINERS` (list, dict, deque, …) itself, not a subclass."""
    return any(cls is container for container in CONTAINERS)


# the classes of dict views, and the method that creates each
VIEWS: dict[type, Callable[[Any], Any]] = {
    type(make(mapping())): make for mapping in (dict, OrderedDict) for make in (mapping.keys, mapping.values, mapping.items)
}


def view_of(value: Any) -> tuple[Callable[[Any], Any], Any] | None:
    """Return how to make a dict view again: a method such as `dict.keys`, and the dict; None if `value` is no dict view."""
    make = VIEWS.get(type(value))
    return None if make is None else (make, gc.get_referents(value)[0])


def slots_of(value: Any) -> Iterator[tuple[str, MemberDescriptorType, Any]]:
    """Yield name, descriptor and value of each slot (`__slots__`) of an object; skip slots without a value."""
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
    """Return the `__dict__` of an object; an empty dict if it has none."""
    read = threading.local.__getattribute__ if issubclass(type(value), threading.local) else object.__getattribute__
    try:
        attributes = read(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}
