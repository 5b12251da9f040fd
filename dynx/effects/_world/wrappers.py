"""Copy objects that wrap other objects, such as methods, and built-in objects whose state is not in attributes."""

from __future__ import annotations

import functools
import gc
import io
import operator
import random
import warnings
import weakref
from collections.abc import Callable
from copy import deepcopy
from types import BuiltinFunctionType, CellType, GeneratorType, MappingProxyType, MethodType, MethodWrapperType
from typing import Any

import torch

from dynx._bytecode.cells import is_filled
from dynx.effects._world.cached_function import CACHED, copy_cached_function
from dynx.effects._world.layout import attributes_of, is_user_defined, view_of

Copy = Callable[[Any], Any]


def copy_wrapper(value: Any, copy: Copy) -> Any | None:
    """Return the copy of an object that wraps another object, or whose state is not in attributes; None for other objects."""
    cls = type(value)
    if cls in _COPIERS:
        return _COPIERS[cls](value, copy)
    if issubclass(cls, property):
        return _copy_property(value, copy)
    if issubclass(cls, (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)):
        return _copy_weak_container(value, copy)
    if (view := view_of(value)) is not None:
        make, mapping = view
        return make(copy(mapping))
    if cls.__module__ == "numpy" and cls.__name__ == "ndarray":
        return _copy_array(value, copy)
    if cls.__module__.startswith("numpy.random"):
        return deepcopy(value)
    if cls.__module__ in ("builtins", "itertools") and hasattr(cls, "__next__") and cls is not GeneratorType:
        return _copy_iterator(value, copy)
    return None


def deep_copy(value: Any) -> Any | None:
    """Return `copy.deepcopy` of an object of a C extension; None if that fails, or if it would run the user's code."""
    if any(is_user_defined(cls) for cls in type(value).__mro__):
        return None
    try:
        return deepcopy(value)
    except Exception:  # noqa: BLE001 - the extension may raise anything
        return None


def _copy_built_in_method(value: Any, copy: Copy) -> Any:
    """Copy a bound method of a built-in object, such as `items.append`: return the method of the object's copy."""
    owner = copy(value.__self__)
    return value if owner is value.__self__ else object.__getattribute__(owner, value.__name__)


def _copy_partial(value: functools.partial[Any], copy: Copy) -> Any:
    partial = functools.partial(copy(value.func), *map(copy, value.args), **copy(value.keywords))
    vars(partial).update({name: copy(item) for name, item in attributes_of(value).items()})
    return partial


def _copy_descriptor(value: Any, copy: Copy) -> Any:
    """Copy a staticmethod or classmethod; return `value` itself if its function is not copied."""
    inner = copy(value.__func__)
    return value if inner is value.__func__ else type(value)(inner)


def _copy_property(value: property, copy: Copy) -> Any:
    functions = value.fget, value.fset, value.fdel
    copies = tuple(map(copy, functions))
    if all(map(operator.is_, functions, copies)):
        return value
    new = property.__new__(type(value))
    property.__init__(new, *copies)
    return new


def _copy_reference(value: weakref.ref[Any], copy: Copy) -> Any:
    target = value()
    return value if target is None else weakref.ref(copy(target))


def _copy_weak_container(value: Any, copy: Copy) -> Any:
    """Copy a weak dict or set; the copy refers weakly to the copies of the items."""
    cls = type(value)
    base: Any = next(base for base in cls.__mro__ if base.__module__ in ("weakref", "_weakrefset"))
    new = object.__new__(cls)
    base.__init__(new)
    if base is weakref.WeakSet:
        for item in list(base.__iter__(value)):
            base.add(new, copy(item))
        return new
    for key, item in list(base.items(value)):
        base.__setitem__(new, copy(key), copy(item))
    return new


def _copy_proxy(value: Any, copy: Copy) -> Any:
    mapping = gc.get_referents(value)[0]
    copied = copy(mapping)
    return value if copied is mapping else MappingProxyType(copied)


def _copy_generator_of_torch(value: torch.Generator, copy: Copy) -> torch.Generator:
    if value is torch.default_generator:
        return value
    return torch.Generator(value.device).set_state(value.get_state())


def _copy_stream(value: Any, copy: Copy) -> Any:
    stream = type(value)(value.getvalue())
    stream.seek(value.tell())
    return stream


def _copy_memory(value: memoryview, copy: Copy) -> memoryview | None:
    """Copy a memoryview of all bytes of an object; None for a view of a part of the object, or of items other than bytes."""
    if value.format != "B" or not value.contiguous or value.nbytes != memoryview(value.obj).nbytes:
        return None
    owner = copy(value.obj)
    return value if owner is value.obj else memoryview(owner)


def _copy_array(value: Any, copy: Copy) -> Any:
    """Copy a NumPy array, and the objects in an array of dtype object."""
    array = value.copy()
    if array.dtype.hasobject and array.dtype.names is None:
        for index, item in enumerate(array.flat):
            array.flat[index] = copy(item)
    return array


def _copy_iterator(value: Any, copy: Copy) -> Any | None:
    """Copy a built-in iterator at its position; None if the position cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns that 3.14 cannot copy iterators of itertools
        try:
            make, arguments, *state = value.__reduce__()
        except TypeError:
            return None
        iterator = make(*map(copy, arguments))
        if state and state[0] is not None:
            iterator.__setstate__(copy(state[0]))
    return iterator


_COPIERS: dict[Any, Callable[[Any, Copy], Any | None]] = {
    MethodType: lambda value, copy: MethodType(copy(value.__func__), copy(value.__self__)),
    BuiltinFunctionType: _copy_built_in_method,
    MethodWrapperType: _copy_built_in_method,
    functools.partial: _copy_partial,
    staticmethod: _copy_descriptor,
    classmethod: _copy_descriptor,
    CACHED: copy_cached_function,
    CellType: lambda value, copy: CellType(copy(value.cell_contents)) if is_filled(value) else CellType(),
    MappingProxyType: _copy_proxy,
    weakref.ref: _copy_reference,
    random.Random: lambda value, copy: deepcopy(value),
    torch.Generator: _copy_generator_of_torch,
    memoryview: _copy_memory,
    bytearray: lambda value, copy: bytearray(value),
    io.BytesIO: _copy_stream,
    io.StringIO: _copy_stream,
}
