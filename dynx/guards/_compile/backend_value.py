"""A backend as a value: two that would compile alike have equal keys.

torch compares backends by identity, so that a fresh lambda or `functools.partial` compiles everything again. Code, defaults,
what is closed over and the globals that are read make up a function here; what can change behind the key's back, a list in a
closure for instance, is only equal to itself.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

from dynx._trace.user_location import owner_of_file

_PLAIN = frozenset({type(None), bool, int, str, bytes, type(Ellipsis)})
_TORCH_PLAIN = frozenset({"dtype", "device", "layout", "memory_format", "Size"})
_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_OF_EVERY_CLASS = frozenset(
    {"__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__", "__static_attributes__"}
    | {"__firstlineno__", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__hash__", "__parameters__"}
)
_WRITERS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "globals", "exec", "eval", "__import__"})
_DICT = type(type("Any", (), {}).__dict__["__dict__"])  # of the descriptor that gives an instance's attributes
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
    """Stands for an object that is equal only to itself, as long as it lives."""

    __slots__ = ("_get", "_id", "may_change")

    def __init__(self, thing: Any, *, may_change: bool = False) -> None:
        try:
            self._get: Any = ref(thing)  # a key must not keep alive what it is the key of
        except TypeError:
            self._get = lambda: thing
        self._id, self.may_change = id(thing), may_change

    def __eq__(self, other: object) -> bool:
        return type(other) is _Itself and other._id == self._id and other._get() is self._get() is not None

    def __hash__(self) -> int:
        return self._id


def value_of(backend: Any) -> Value:
    """Give the value of a backend: a name, a function, a partial, an instance with options, or anything.

    Functions are compared by code, file, attributes, defaults, closure and the globals they read, functions of the user's among
    those in turn; partials and namedtuples by their parts; objects with an `__eq__` of their own by that; other instances by
    their class and their attributes, if these cannot change and no method assigns one. The rest is compared by identity, and so
    is a function that assigns what is outside of it. Nothing of the user's is called, but for `__eq__` and `__hash__`.

    >>> from functools import partial
    >>> value_of(partial(print, sep="-")).key == value_of(partial(print, sep="-")).key
    True
    """
    reader = _Reader()
    return Value(reader.read(backend, "the backend"), tuple(dict.fromkeys(reader.by_identity)))


class _Reader:
    """Reads one value; knows what it is reading, which may refer to itself."""

    def __init__(self) -> None:
        self.by_identity: list[str] = []
        self._reading: dict[int, int] = {}  # the position of each by identity

    def read(self, value: Any, what: str) -> Hashable:
        """Give a key for a value; `what` names it for the user."""
        cls: Any = type(value)
        if type(cls) is type:
            if cls in _PLAIN or (cls.__module__ == "torch" and cls.__name__ in _TORCH_PLAIN):
                return cls, value
            if cls in (float, complex):
                return cls, repr(value)  # tells 0.0 from -0.0, and has one nan
        if issubclass(cls, (type, ModuleType, Enum)):
            return _Itself(value)  # there is one of each
        if id(value) in self._reading:
            return "again", self._reading[id(value)]
        self._reading[id(value)] = len(self._reading)
        try:
            return self._read_parts(cls, value, what)
        finally:
            del self._reading[id(value)]

    def _read_parts(self, cls: Any, value: Any, what: str) -> Hashable:
        if cls in (tuple, frozenset):
            return cls, cls(self.read(each, what) for each in value)
        if issubclass(cls, tuple) and hasattr(cls, "_fields") and not hasattr(value, "__dict__"):
            return _Itself(cls), tuple(self.read(each, what) for each in tuple.__iter__(value))
        if cls is partial and not vars(value):
            positional = tuple(self._option(each) for each in value.args)
            named = tuple((name, self._option(each)) for name, each in sorted(value.keywords.items()))
            return partial, self.read(value.func, what), positional, named
        if cls is FunctionType:
            return self._function(value)
        if cls is MethodType and type(value.__func__) is FunctionType:
            return MethodType, self.read(value.__func__, what), self.read(value.__self__, what)
        if cls is BuiltinFunctionType:
            return BuiltinFunctionType, value.__name__, _Itself(value.__self__)
        if _has_own_equality(cls) and _compares(value):
            return _Itself(cls), "equal", value
        return self._instance(cls, value, what)

    def _option(self, value: Any) -> Hashable:
        """Read an argument that was bound to a function; a dict of named options is what it holds.

        An empty one may be there to be filled, as a list may.
        """
        if type(value) is dict and value and all(type(name) is str for name in value) and id(value) not in self._reading:
            self._reading[id(value)] = len(self._reading)
            found = dict, tuple((name, self._option(each)) for name, each in value.items())
            del self._reading[id(value)]
            return found
        return self.read(value, "an option")

    def _function(self, fn: Any) -> Hashable:
        code, name = fn.__code__, fn.__qualname__
        if _is_of_a_library(code.co_filename) and not fn.__closure__:
            return _Itself(fn)
        if not _leaves_the_outside_alone(code):
            return self._by_identity(fn, f"{name} assigns or imports what is outside of it, and")
        defaults = (*(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items()))
        closure = zip(code.co_freevars, fn.__closure__ or (), strict=True)
        attributes = ((each, value) for each, value in sorted(vars(fn).items()) if each != "__wrapped__")
        return (
            FunctionType,
            code.co_filename,
            code,
            tuple(self.read(each, f"a default of {name}") for each in defaults),
            tuple(self.read(_content(cell), f"{cell_name!r}, which {name} closes over") for cell_name, cell in closure),
            tuple((each, self.read(value, f"{name}.{each}")) for each, value in attributes),
            tuple(
                (path, self.read(value, f"{'.'.join(path)!r}, which {name} reads"))
                for path, value in sorted(_globals_read(fn).items())
            ),
        )

    def _instance(self, cls: Any, value: Any, what: str) -> Hashable:
        if _keeps_its_attributes(cls):
            before = len(self.by_identity)
            members = tuple((name, self.read(each, f"{cls.__qualname__}.{name}")) for name, each in _members(cls))
            state = object.__getattribute__(value, "__dict__")
            key = _Itself(cls), members, tuple((name, self.read(each, f"{what}.{name}")) for name, each in state.items())
            if len(self.by_identity) == before:
                return key
            del self.by_identity[before:]
        return self._by_identity(value, f"{what}, a {cls.__qualname__},")

    def _by_identity(self, value: Any, why: str) -> Hashable:
        self.by_identity.append(why)
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


def _is_of_a_library(file: str) -> bool:
    owner, library = owner_of_file(file)
    return owner != "user" or library is not None


def _globals_read(fn: Any) -> Mapping[tuple[str, ...], Any]:
    """Resolve the globals that a function and those inside it read; of modules and classes the attributes: `("math", "pi")`."""
    builtins = fn.__builtins__
    found: dict[tuple[str, ...], Any] = {}
    for code in _codes(fn.__code__):
        path: tuple[str, ...] = ()
        value: Any = _ABSENT
        for each in dis.get_instructions(code):
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                path, value = (each.argval,), fn.__globals__.get(each.argval, builtins.get(each.argval, _ABSENT))
            elif each.opname in ("LOAD_ATTR", "LOAD_METHOD") and path and isinstance(value, (ModuleType, type)):
                path, value = (*path, each.argval), inspect.getattr_static(value, each.argval, _ABSENT)
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


def _leaves_the_outside_alone(code: CodeType) -> bool:
    """Tell whether a function assigns no global and nothing it closes over, and imports no code of the user's."""
    outside = set(code.co_freevars)
    for inner in _codes(code):
        for each in dis.get_instructions(inner):
            if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                return False
            if each.opname in ("STORE_DEREF", "DELETE_DEREF") and each.argval in outside:
                return False
            if each.opname == "IMPORT_NAME" and not _is_library_module(each.argval):
                return False
    return True


def _is_library_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return name in sys.builtin_module_names if file is None else _is_of_a_library(file)


def _has_own_equality(cls: Any) -> bool:
    return cls.__eq__ is not object.__eq__ and cls.__hash__ not in (None, object.__hash__)


def _members(cls: Any) -> list[tuple[str, Any]]:
    return [(name, each) for base in cls.__mro__[:-1] for name, each in vars(base).items() if name not in _OF_EVERY_CLASS]


def _keeps_its_attributes(cls: Any) -> bool:
    """Tell whether instances are all in their `__dict__`, and no method but `__init__` assigns there.

    A backend that counts or collects does.
    """
    if type(cls) is not type or not all(base.__flags__ & _MADE_IN_PYTHON for base in cls.__mro__[:-1]):
        return False  # what it does cannot be seen
    bases = [vars(base) for base in cls.__mro__[:-1]]
    if any("__slots__" in each for each in bases) or not any(type(each.get("__dict__")) is _DICT for each in bases):
        return False
    methods = [each for _, each in _members(cls) if isinstance(each, FunctionType)]
    return not any(_assigns_attributes(each.__code__) for each in methods if each.__name__ not in ("__init__", "__post_init__"))


def _assigns_attributes(code: CodeType) -> bool:
    return any(
        not _WRITERS.isdisjoint(inner.co_names)
        or any(each.opname in ("STORE_ATTR", "DELETE_ATTR") for each in dis.get_instructions(inner))
        for inner in _codes(code)
    )
