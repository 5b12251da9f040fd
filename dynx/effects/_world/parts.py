"""`Parts`: the objects that an object refers to, and its own state, read without running the user's code.

The parts of a list are its items, with labels such as `[0]`; those of other objects are their attributes, with labels such as
`.weight`. The own state is a value that can be compared, such as the shape and a checksum of a tensor.
"""

from __future__ import annotations

import functools
import gc
import io
import logging
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextvars import ContextVar
from functools import lru_cache
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
from dynx._bytecode.safe_read import text_of
from dynx._reading.owner import owner_of_class, owner_of_code, owner_of_module
from dynx._reading.variables import is_name_of_user
from dynx.effects._world.layout import (
    CONTAINERS,
    NUMBERS_AND_TEXT,
    OF_COMPILATION,
    OF_LOGGERS,
    VIEWS,
    attributes_of,
    built_in_base,
    is_class_of_constants,
    is_class_of_torch,
    is_constant,
    is_function_of_c,
    slots_of,
    view_of,
)

_name_of_class = type.__dict__["__name__"].__get__  # even if a metaclass defines `__name__`
_LOCKS = type(threading.Lock()), type(threading.RLock())
_SUSPENDED = GeneratorType, CoroutineType, AsyncGeneratorType
# packages whose objects run the process in their own threads, such as an event loop or the kernel of a notebook
_OF_PROCESS = {"dynx", "asyncio", "selectors", "IPython", "ipykernel", "traitlets", "jupyter_client", "tornado", "zmq"}
_WITHOUT_ATTRIBUTES: tuple[Any, ...] = (dict, list, tuple, set, frozenset)  # their subclasses may have some
_MAX_LABELS = 4096
Item = tuple[str, Any]  # a label, such as ".weight" or "[0]", and an object


class Parts(NamedTuple):
    """The items and attributes of an object, with labels (`[0]`, `.weight`); `own` is its other state, such as a checksum."""

    labels: Sequence[str]
    objects: Sequence[Any]
    own: Hashable = None


Reader = Callable[[Any], Parts | None]
_EMPTY = Parts((), ())


class Readers(dict[type, Reader | None]):
    """A dict from a class to the function that reads items and attributes of its objects; filled when a class is looked up.

    The user's code may change a class, so create new Readers after it has run.
    """

    def __missing__(self, cls: type) -> Reader | None:
        reader = self[cls] = _reader_of(cls)
        return reader

    def parts_of(self, value: Any) -> Parts | None:
        """Return the `Parts` of an object; None for constants, library classes and modules, internals of torch or dynx."""
        read = self[type(value)]
        return None if read is None else read(value)


def _reader_of(cls: type) -> Reader | None:
    """Return the function that reads items and attributes of the objects of a class; None for constants and internals."""
    if issubclass(cls, type):
        return _of_class
    if issubclass(cls, ModuleType):
        return _of_module
    if is_class_of_constants(cls) or is_class_of_torch(cls) or cls.__module__.partition(".")[0] in _OF_PROCESS:
        return None
    for kind, read in _READERS:
        if issubclass(cls, kind):
            return read
    if issubclass(cls, _KINDS_OF_WRAPPERS):
        return _of_wrapper
    if cls.__module__ == "numpy" and cls.__name__ == "ndarray":
        return _of_array
    return _reader_of_items(cls) if built_in_base(cls) in CONTAINERS else _reader_of_object(cls)


def _reader_of_items(cls: type) -> Reader:
    """Return the function that reads items and attributes of the objects of a container class, such as a list subclass."""
    base: Any = built_in_base(cls)
    items_of = _items_of_dict if issubclass(base, dict) else _items_of_set if base in (set, frozenset) else _items_of_sequence
    of_class = [] if cls is base else [(".__class__", cls)]
    if cls in _WITHOUT_ATTRIBUTES:
        return lambda value: Parts(*items_of(value, base)) if value else _EMPTY
    has_slots = _has_slots(cls)
    return lambda value: _parts_with_attributes(value, *items_of(value, base), of_class, has_slots=has_slots)


def _reader_of_object(cls: type) -> Reader:
    """Return the function that reads the attributes of the objects of a class that is not a container.

    For a subclass of int, str or a similar type, the function also reads the number or text, as `Parts.own`.
    """
    own_of, of_class, has_slots = NUMBERS_AND_TEXT.get(built_in_base(cls)), [(".__class__", cls)], _has_slots(cls)
    if own_of is None:
        return lambda value: _parts_with_attributes(value, [], [], of_class, has_slots=has_slots)
    return lambda value: _parts_with_attributes(value, [], [], of_class, own_of(value), has_slots=has_slots)


def _has_slots(cls: type) -> bool:
    return any("__slots__" in vars(base) for base in cls.__mro__)


def items_of_wrapper(value: Any) -> list[Item] | None:
    """Return what a wrapper refers to, with labels: `.__func__` and `.__self__` of a method; None if `value` is no wrapper."""
    for kind, names in _WRAPPERS:
        if issubclass(type(value), kind):
            return [(f".{name}", part) for name in names if (part := getattr(value, name)) is not None]
    if type(value) is MappingProxyType:
        return [(".mapping", gc.get_referents(value)[0])]
    view = view_of(value)
    return None if view is None else [(".mapping", view[1])]


def has_unknown_state(value: Any) -> bool:
    """Return whether an object that cannot be copied may have state that `Parts` does not read; False for locks and files."""
    return not issubclass(type(value), (*_LOCKS, *_SUSPENDED, io.IOBase))


def _parts(items: Iterable[Item], own: Hashable = None) -> Parts:
    pairs = list(items)
    return Parts([label for label, _ in pairs], [item for _, item in pairs], own)


def _of_class(cls: type) -> Parts | None:
    """Return attributes, bases, metaclass and name of a user's class; None for library classes, which torch may change."""
    if owner_of_class(cls) != "user":
        return None
    items = [(f".{name}", item) for name, item in tuple(vars(cls).items()) if is_name_of_user(name)]
    bases = ((f".__bases__[{index}]", base) for index, base in enumerate(cls.__bases__))
    return _parts([*items, *bases, (".__class__", type(cls))], _name_of_class(cls))


def _of_module(module: ModuleType) -> Parts | None:
    if owner_of_module(module) != "user":
        return None
    names = [name for name in tuple(vars(module)) if isinstance(name, str) and is_name_of_user(name)]
    return _parts((f".{name}", vars(module)[name]) for name in names)


def _of_function(function: FunctionType) -> Parts:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    items: list[Item] = [(f".closure.{name}", cell.cell_contents) for name, cell in cells if is_filled(cell)]
    items += [(f".{name}", getattr(function, name)) for name in ("__defaults__", "__kwdefaults__") if getattr(function, name)]
    items += [(f".{name}", item) for name, item in tuple(function.__dict__.items()) if is_name_of_user(name)]
    module = sys.modules.get(str(function.__globals__.get("__name__")))
    if owner_of_code(function.__code__) == "user" and (module is None or vars(module) is not function.__globals__):
        items.append((".__globals__", function.__globals__))  # of code that `exec` ran without a module
    return _parts(items)


def _of_wrapper(value: Any) -> Parts:
    return _parts_with_attributes(value, [], [], items_of_wrapper(value) or ())


def _of_built_in_method(value: Any) -> Parts | None:
    return None if is_function_of_c(value) else _of_wrapper(value)


def _of_tensor(tensor: torch.Tensor) -> Parts:
    grad = tensor.grad if tensor.is_leaf else None
    labels, objects = ([], []) if grad is None else ([".grad"], [grad])
    return _parts_with_attributes(tensor, labels, objects, own=_state_of_tensor(tensor))


def _state_of_tensor(tensor: torch.Tensor) -> Hashable:
    """Return the shape, dtype, `requires_grad` and version of a tensor, and a checksum of its elements."""
    try:
        shape = tuple(tensor.shape)  # first: a lazy parameter raises RuntimeError here, ValueError elsewhere
        state = (shape, tensor.dtype, tensor.requires_grad, None if tensor.is_inference() else tensor._version)
        if tensor.is_meta or tensor.layout is not torch.strided or not tensor.numel():
            return state
        return (*state, _checksum(tensor))
    except (RuntimeError, NotImplementedError):  # a subclass, or a tensor without storage
        return type(tensor).__name__


def _checksum(tensor: torch.Tensor) -> int:
    """Return the sum of the elements' memory, read as 8-byte integers; remaining bytes are added one by one."""
    plain = tensor.int_repr() if tensor.is_quantized else tensor.detach().resolve_conj().resolve_neg()
    elements = plain.contiguous().view(-1).view(torch.uint8)
    if elements.storage_offset() % 8:  # torch views 8-byte integers only at offsets that are multiples of 8
        elements = elements.clone()
    whole = elements.numel() // 8 * 8
    if whole == elements.numel():
        return int(elements.view(torch.int64).sum())
    return int(elements[:whole].view(torch.int64).sum()) + int(elements[whole:].sum())


def _of_array(array: Any) -> Parts:
    if array.dtype.hasobject:
        return Parts(*_items_of_sequence(array.flat, type(array.flat)), array.shape)
    return Parts((), (), (array.shape, str(array.dtype), hash(array.tobytes())))


def _of_suspended(value: Any) -> Parts:
    """Return the local variables of a generator or coroutine, and as `Parts.own` the position in its code."""
    frame = getattr(value, "gi_frame", None) or getattr(value, "cr_frame", None) or getattr(value, "ag_frame", None)
    if frame is None:
        return Parts((), (), "finished")
    variables = frame.f_locals
    labels = [f".gi_frame.f_locals[{name!r}]" for name in variables]
    return Parts(labels, list(variables.values()), f"at line {frame.f_lineno}, instruction {frame.f_lasti}")


def _of_file(value: Any) -> Parts:
    try:
        position = value.tell() if not value.closed and value.seekable() else None
    except (OSError, ValueError):
        position = None
    own = f"at {position}" if position is not None else f"closed: {value.closed}"
    return _parts_with_attributes(value, [], [], own=own)


def _of_one(label: str, value: Any) -> Parts:
    return _EMPTY if value is None else Parts((label,), (value,))


def _of_cached(value: Any) -> Parts:
    """Return `__wrapped__` of an `lru_cache` function; `own` is the number of cached results, None for a library's function."""
    function = value.__wrapped__
    is_user = type(function) is FunctionType and owner_of_code(function.__code__) == "user"
    return Parts((".__wrapped__",), (function,), f"{value.cache_info().currsize} results" if is_user else None)


def _of_logger(value: logging.Logger) -> Parts:
    return _parts((f".{name}", getattr(value, name)) for name in OF_LOGGERS)


def _items_of_dict(value: Any, base: Any) -> tuple[list[str], list[Any]]:
    labels: list[str] = []
    objects: list[Any] = []
    for key, item in list(base.items(value)):
        label = _label_of_key(key) if type(key) is str else f"[{text_of(key)}]"
        if type(key) is not str and not is_constant(key):
            labels.append(f".keys(){label}")
            objects.append(key)
        labels.append(label)
        objects.append(item)
    return labels, objects


def _items_of_set(value: Any, base: Any) -> tuple[list[str], list[Any]]:
    items = list(base.__iter__(value))
    return [f"{{{text_of(item)}}}" for item in items], items


def _items_of_sequence(value: Any, base: Any) -> tuple[list[str], list[Any]]:
    items = list(base.__iter__(value))
    return [f"[{index}]" for index in range(len(items))], items


def _parts_with_attributes(
    value: Any,
    labels: list[str],
    objects: list[Any],
    others: Iterable[Item] = (),
    own: Hashable = None,
    *,
    has_slots: bool = True,
) -> Parts:
    """Return `Parts`: `objects` with their `labels`, then attributes and slots of `value`, then `others`, and state `own`."""
    if attributes := attributes_of(value):
        attributes = attributes.copy()  # in one step: another thread may add attributes
        for label, item in zip(map(_label_of_attribute, attributes), attributes.values(), strict=True):
            if label is not None:
                labels.append(label)
                objects.append(item)
    for name, _, item in slots_of(value) if has_slots else ():
        labels.append(f".{name}")
        objects.append(item)
    for label, item in others:
        labels.append(label)
        objects.append(item)
    return Parts(labels, objects, own) if labels or own is not None else _EMPTY


# cached, since many objects have attributes of the same names
@lru_cache(_MAX_LABELS)
def _label_of_attribute(name: str) -> str | None:
    return None if OF_COMPILATION.match(name) else f".{name}"


@lru_cache(_MAX_LABELS)
def _label_of_key(key: str) -> str:
    return f"[{text_of(key)}]"


_WRAPPERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (MethodType, ("__func__", "__self__")),
    (BuiltinFunctionType, ("__self__",)),
    ((staticmethod, classmethod), ("__func__",)),
    (property, ("fget", "fset", "fdel")),
    (functools.partial, ("func", "args", "keywords")),
    (memoryview, ("obj",)),
)
_KINDS_OF_WRAPPERS: tuple[Any, ...] = (*(kind for kind, _ in _WRAPPERS), MappingProxyType, *VIEWS)
_READERS: tuple[tuple[Any, Reader], ...] = (
    (BuiltinFunctionType, _of_built_in_method),
    (torch.Tensor, _of_tensor),
    (FunctionType, _of_function),
    (functools._lru_cache_wrapper, _of_cached),
    (weakref.ref, lambda reference: _of_one("()", reference())),
    (ContextVar, lambda variable: _of_one(".get()", variable.get(None))),
    (logging.Logger, _of_logger),
    ((bytearray, array), lambda value: _parts_with_attributes(value, [], [], own=bytes(value))),
    (_LOCKS, lambda value: Parts((), (), value.locked() if hasattr(value, "locked") else None)),
    (_SUSPENDED, _of_suspended),
    (io.IOBase, _of_file),
)
