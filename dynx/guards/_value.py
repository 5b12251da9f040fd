"""A backend as a value: two that would compile alike have equal keys.

torch compares backends by identity, so that a fresh lambda or `functools.partial` compiles everything again. Code, defaults,
what is closed over and the globals that are read make up a function here; what can change behind the key's back, a list in a
closure for instance, is only equal to itself.
"""

from __future__ import annotations

import dis
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from dynx._trace.userline import owner_of_file

_PLAIN: tuple[Any, ...] = (type(None), bool, int, str, bytes, type(Ellipsis))
_TORCH_PLAIN = ("dtype", "device", "layout", "memory_format", "Size")
_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Value:
    """A key, and what in it is compared by identity, in words."""

    key: Hashable
    by_identity: tuple[str, ...] = ()

    @property
    def likeness(self) -> Hashable:
        """The key without what is compared by identity: equal for two that look alike."""
        return _loosely(self.key)


class _Itself:
    """Stands for an object that is equal only to itself, and keeps it alive: its identity must not go to another."""

    __slots__ = ("_object", "may_change")

    def __init__(self, thing: Any, *, may_change: bool = False) -> None:
        self._object, self.may_change = thing, may_change

    def __eq__(self, other: object) -> bool:
        return type(other) is _Itself and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object)


def value_of(backend: Any) -> Value:
    """Give the value of a backend: a name, a function, a partial, an instance with options, or anything.

    Functions are compared by code, file, defaults, closure and the globals they read, functions of the user's among those in
    turn; partials by their parts; frozen dataclasses and objects with an `__eq__` of their own by that; other instances by
    their attributes, if these cannot change and no method assigns one. The rest is compared by identity. Nothing of the user's
    is called, but for `__eq__` and `__hash__`.

    >>> from functools import partial
    >>> value_of(partial(print, sep="-")).key == value_of(partial(print, sep="-")).key
    True
    """
    reader = _Reader()
    return Value(reader.read(backend, "the backend"), tuple(dict.fromkeys(reader.by_identity)))


class _Reader:
    """Reads one value; knows the functions on the way, which may refer to each other."""

    def __init__(self) -> None:
        self.by_identity: list[str] = []
        self._functions: list[FunctionType] = []

    def read(self, value: Any, what: str) -> Hashable:
        """Give a key for a value; `what` names it for the user."""
        cls = type(value)
        if cls in _PLAIN or (cls.__module__ == "torch" and cls.__name__ in _TORCH_PLAIN):
            return cls, value
        if cls in (float, complex):
            return cls, repr(value)  # tells 0.0 from -0.0, and has one nan
        if cls in (tuple, frozenset):
            return cls, cls(self.read(each, what) for each in value)
        if issubclass(cls, (type, ModuleType, Enum)):
            return _Itself(value)  # there is one of each
        if cls is partial:
            named = sorted(value.keywords.items())
            given = (*value.args, *(each for _, each in named))
            return (
                partial,
                self.read(value.func, what),
                tuple(self._option(each) for each in given),
                tuple(name for name, _ in named),
            )
        if cls is FunctionType:
            return self._function(value)
        if cls is MethodType:
            return MethodType, self._function(value.__func__), self.read(value.__self__, what)
        if cls is BuiltinFunctionType:
            return BuiltinFunctionType, value.__name__, _Itself(value.__self__)
        return self._instance(value, what)

    def _option(self, value: Any) -> Hashable:
        """Read an argument that was bound to a function; a dict of named options is what it holds.

        An empty one may be there to be filled, as a list may.
        """
        if type(value) is dict and value and all(type(name) is str for name in value):
            return dict, tuple((name, self._option(each)) for name, each in value.items())
        return self.read(value, "an option")

    def _function(self, fn: Any) -> Hashable:
        if fn in self._functions:
            return "recursion", self._functions.index(fn)
        if _is_of_a_library(fn.__code__) and not fn.__closure__:
            return _Itself(fn)
        self._functions.append(fn)
        name = fn.__qualname__
        defaults = (*(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items()))
        closure = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        return (
            FunctionType,
            _Itself(fn.__globals__),
            fn.__code__.co_filename,
            fn.__code__,
            tuple(self.read(each, f"a default of {name}") for each in defaults),
            tuple(self.read(_content(cell), f"{cell_name!r}, which {name} closes over") for cell_name, cell in closure),
            tuple(
                (path, self.read(value, f"{'.'.join(path)!r}, which {name} reads"))
                for path, value in sorted(_globals_read(fn).items())
            ),
        )

    def _instance(self, value: Any, what: str) -> Hashable:
        cls: Any = type(value)
        if is_dataclass(value) and cls.__dataclass_params__.frozen:
            return cls, tuple(self.read(getattr(value, each.name), f"{what}.{each.name}") for each in fields(value))
        if cls.__eq__ is not object.__eq__ and cls.__hash__ not in (None, object.__hash__) and _compares(value):
            return "equal", value
        state = getattr(value, "__dict__", None)
        if type(state) is dict and _keeps_its_attributes(cls):
            before = len(self.by_identity)
            methods = tuple(self._function(each) for each in _methods(cls))
            key = _Itself(cls), methods, tuple((name, self.read(each, f"{what}.{name}")) for name, each in state.items())
            if len(self.by_identity) == before:
                return key
            del self.by_identity[before:]
        self.by_identity.append(f"{what}, a {cls.__qualname__},")
        return _Itself(value, may_change=True)


def _loosely(key: Any) -> Any:
    if type(key) in (tuple, frozenset):
        return type(key)(map(_loosely, key))
    return "any" if type(key) is _Itself and key.may_change else key


def _compares(value: Any) -> bool:
    """Tell whether a value can be told from others by `==`; tensors for instance answer with a tensor."""
    try:
        hash(value)
        return (value == value) is True
    except Exception:  # noqa: BLE001 - the user's `__hash__` and `__eq__`
        return False


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _is_of_a_library(code: CodeType) -> bool:
    owner, library = owner_of_file(code.co_filename)
    return owner != "user" or library is not None


def _globals_read(fn: Any) -> Mapping[tuple[str, ...], Any]:
    """Resolve the globals that a function and those inside it read; of modules the attributes: `("math", "pi")`."""
    builtins = fn.__builtins__
    found: dict[tuple[str, ...], Any] = {}
    for code in _codes(fn.__code__):
        path: tuple[str, ...] = ()
        value: Any = _ABSENT
        for each in dis.get_instructions(code):
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                path, value = (each.argval,), fn.__globals__.get(each.argval, builtins.get(each.argval, _ABSENT))
            elif each.opname in ("LOAD_ATTR", "LOAD_METHOD") and path and type(value) is ModuleType:
                path, value = (*path, each.argval), vars(value).get(each.argval, _ABSENT)
            else:
                path = ()
                continue
            if value is not _ABSENT:
                found[path] = value
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _methods(cls: Any) -> list[FunctionType]:
    return [each for base in cls.__mro__[:-1] for each in vars(base).values() if isinstance(each, FunctionType)]


def _keeps_its_attributes(cls: Any) -> bool:
    """Tell whether no method but `__init__` assigns an attribute, as one of a backend that counts or collects does."""
    if not all(base.__flags__ & _MADE_IN_PYTHON for base in cls.__mro__[:-1]):
        return False  # what it does cannot be seen
    codes = (each.__code__ for each in _methods(cls) if each.__name__ not in ("__init__", "__post_init__"))
    instructions = (each for code in codes for inner in _codes(code) for each in dis.get_instructions(inner))
    return not any(each.opname in ("STORE_ATTR", "DELETE_ATTR") for each in instructions)
