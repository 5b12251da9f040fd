"""What an object consists of, by kind: the objects in it, and its own state. No code of the user runs."""

from __future__ import annotations

import functools
import gc
import io
import logging
import sys
import threading
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import torch

from dynx._bytecode.cells import is_filled
from dynx._reading.owner import owner_of_class, owner_of_code, owner_of_module
from dynx._reading.variables import is_name_of_user
from dynx._trace.safe_read import text_of
from dynx.effects._world.layout import (
    CONTAINERS,
    NUMBERS_AND_TEXT,
    OF_COMPILATION,
    attributes_of,
    built_in_base,
    is_constant,
    is_of_torch,
    slots_of,
    view_of,
)

_LOCKS = type(threading.Lock()), type(threading.RLock())
_SUSPENDED = GeneratorType, CoroutineType, AsyncGeneratorType
# packages whose objects run the process, in threads of their own: an event loop, the kernel of a notebook
_OF_PROCESS = {"dynx", "asyncio", "selectors", "IPython", "ipykernel", "traitlets", "jupyter_client", "tornado", "zmq"}
Item = tuple[str, Any]  # a label, such as ".weight" or "[0]", and an object


class Parts(NamedTuple):
    """The objects in an object, with labels, and its own state, which can be compared."""

    items: list[Item]
    own: Hashable = None


def parts_of(value: Any) -> Parts | None:
    """Return what an object consists of; None for one that cannot change, or whose state is torch's own."""
    cls = type(value)
    if issubclass(cls, type):
        return _of_class(value)
    if issubclass(cls, ModuleType):
        return _of_module(value)
    if is_constant(value) or is_of_torch(value) or cls.__module__.partition(".")[0] in _OF_PROCESS:
        return None
    for kind, read in _READERS:
        if issubclass(cls, kind):
            return read(value)
    if (items := items_of_wrapper(value)) is not None:
        return Parts([*items, *_attributes(value)])
    if cls.__module__ == "numpy" and cls.__name__ == "ndarray":
        return _of_array(value)
    base = built_in_base(cls)
    if base in CONTAINERS:
        of_class = [] if cls is base else [(".__class__", cls)]
        return Parts([*_items_of(value, base), *_attributes(value), *of_class])
    own = NUMBERS_AND_TEXT[base](value) if base in NUMBERS_AND_TEXT else None
    return Parts([*_attributes(value), (".__class__", cls)], own)


def items_of_wrapper(value: Any) -> list[Item] | None:
    """Return what an object consists of that stands for others, such as a method or a partial; None for other objects."""
    for kind, names in _WRAPPERS:
        if issubclass(type(value), kind):
            return [(f".{name}", part) for name in names if (part := getattr(value, name)) is not None]
    if type(value) is MappingProxyType:
        return [(".mapping", gc.get_referents(value)[0])]
    view = view_of(value)
    return None if view is None else [(".mapping", view[1])]


def has_unknown_state(value: Any) -> bool:
    """Return whether an object that cannot be copied may have state that `parts_of` does not see."""
    return not issubclass(type(value), (*_LOCKS, *_SUSPENDED, io.IOBase))


def _of_class(cls: type) -> Parts | None:
    if owner_of_class(cls) != "user":  # compilations change classes of libraries, such as triton's
        return None
    items = [(f".{name}", item) for name, item in tuple(vars(cls).items()) if is_name_of_user(name)]
    return Parts(
        [*items, *((f".__bases__[{index}]", base) for index, base in enumerate(cls.__bases__)), (".__class__", type(cls))]
    )


def _of_module(module: ModuleType) -> Parts | None:
    if owner_of_module(module) != "user":
        return None
    names = [name for name in tuple(vars(module)) if isinstance(name, str) and is_name_of_user(name)]
    return Parts([(f".{name}", vars(module)[name]) for name in names])


def _of_function(function: FunctionType) -> Parts:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    items: list[Item] = [(f".closure.{name}", cell.cell_contents) for name, cell in cells if is_filled(cell)]
    items += [(f".{name}", getattr(function, name)) for name in ("__defaults__", "__kwdefaults__") if getattr(function, name)]
    items += [(f".{name}", item) for name, item in tuple(function.__dict__.items()) if is_name_of_user(name)]
    module = sys.modules.get(str(function.__globals__.get("__name__")))
    if owner_of_code(function.__code__) == "user" and (module is None or vars(module) is not function.__globals__):
        items.append((".__globals__", function.__globals__))  # of code that was executed without a module
    return Parts(items)


def _of_tensor(tensor: torch.Tensor) -> Parts:
    items: list[Item] = [(".grad", tensor.grad)] if tensor.is_leaf and tensor.grad is not None else []
    return Parts([*items, *_attributes(tensor)], _state_of_tensor(tensor))


def _state_of_tensor(tensor: torch.Tensor) -> Hashable:
    """Return the shape, dtype and a checksum of the elements of a tensor."""
    try:
        shape = (tuple(tensor.shape), tensor.dtype, tensor.requires_grad)
        if tensor.is_meta or tensor.layout is not torch.strided or not tensor.numel():
            return shape
        version = None if tensor.is_inference() else tensor._version
        elements = tensor.detach().contiguous().view(-1).view(torch.uint8)
        whole = elements.numel() // 8 * 8
        total = int(elements[:whole].view(torch.int64).sum()) + int(elements[whole:].sum())
        return (*shape, version, total)
    except (RuntimeError, NotImplementedError):  # a subclass, or a tensor without elements of its own
        return type(tensor).__name__


def _of_array(array: Any) -> Parts:
    if array.dtype.hasobject:
        return Parts([(f"[{index}]", item) for index, item in enumerate(array.flat)], array.shape)
    return Parts([], (array.shape, str(array.dtype), hash(array.tobytes())))


def _of_suspended(value: Any) -> Parts:
    """Return the state of a generator or coroutine: where it is, and its local variables."""
    frame = getattr(value, "gi_frame", None) or getattr(value, "cr_frame", None) or getattr(value, "ag_frame", None)
    if frame is None:
        return Parts([], "finished")
    variables: list[Item] = [(f".gi_frame.f_locals[{name!r}]", item) for name, item in frame.f_locals.items()]
    return Parts(variables, f"at line {frame.f_lineno}, instruction {frame.f_lasti}")


def _of_file(value: Any) -> Parts:
    try:
        position = value.tell() if not value.closed and value.seekable() else None
    except (OSError, ValueError):
        position = None
    return Parts([*_attributes(value)], f"at {position}" if position is not None else f"closed: {value.closed}")


def _of_context_variable(value: ContextVar[Any]) -> Parts:
    current = value.get(None)
    return Parts([] if current is None else [(".get()", current)])


def _of_reference(value: Any) -> Parts:
    target = value()
    return Parts([] if target is None else [("()", target)])


def _of_cached(value: Any) -> Parts:
    """Return the function; of the user's also how full its cache is: a later call returns what is in it."""
    function = value.__wrapped__
    is_user = type(function) is FunctionType and owner_of_code(function.__code__) == "user"
    return Parts([(".__wrapped__", function)], f"{value.cache_info().currsize} results" if is_user else None)


def _of_logger(value: logging.Logger) -> Parts:
    return Parts([(f".{name}", getattr(value, name)) for name in ("level", "handlers", "filters", "disabled", "propagate")])


def _items_of(value: Any, base: Any) -> Iterator[Item]:
    if issubclass(base, dict):
        for key, item in list((OrderedDict if base is OrderedDict else dict).items(value)):
            text = text_of(key)
            if not is_constant(key):
                yield f".keys()[{text}]", key
            yield f"[{text}]", item
        return
    for index, item in enumerate(list(base.__iter__(value))):
        yield (f"{{{text_of(item)}}}" if base in (set, frozenset) else f"[{index}]"), item


def _attributes(value: Any) -> Iterator[Item]:
    for name, item in tuple(attributes_of(value).items()):
        if OF_COMPILATION.match(name) is None:
            yield f".{name}", item
    for name, _, item in slots_of(value):
        yield f".{name}", item


_WRAPPERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (MethodType, ("__func__", "__self__")),
    (BuiltinFunctionType, ("__self__",)),
    ((staticmethod, classmethod), ("__func__",)),
    (property, ("fget", "fset", "fdel")),
    (functools.partial, ("func", "args", "keywords")),
    (memoryview, ("obj",)),
)
_READERS: tuple[tuple[Any, Callable[[Any], Parts]], ...] = (
    (torch.Tensor, _of_tensor),
    (FunctionType, _of_function),
    (functools._lru_cache_wrapper, _of_cached),
    (weakref.ref, _of_reference),
    (ContextVar, _of_context_variable),
    (logging.Logger, _of_logger),
    ((bytearray, array), lambda value: Parts([*_attributes(value)], bytes(value))),
    (_LOCKS, lambda value: Parts([], value.locked() if hasattr(value, "locked") else None)),
    (_SUSPENDED, _of_suspended),
    (io.IOBase, _of_file),
)
