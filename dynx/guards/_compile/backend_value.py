"""Compute a key from the code and options of a backend, so that backends that compile in the same way have equal keys.

torch compares backends by identity, so that a new lambda or `functools.partial` compiles everything again. Here the key of a
function consists of its code, defaults, closure and the globals that it reads; a part that can change without changing the key,
such as a list in a closure, is compared by identity.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from operator import itemgetter
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from weakref import ref

from dynx._bytecode.cells import is_filled
from dynx._bytecode.globals_read import codes_in, globals_read
from dynx._reading.user_location import owner_of_file

_PLAIN = frozenset({type(None), bool, int, str, bytes, type(Ellipsis)})
_TORCH_PLAIN = frozenset({"dtype", "device", "layout", "memory_format", "Size"})
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: the class was defined in Python
_IMPLICIT_MEMBERS = frozenset(
    {"__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__", "__static_attributes__"}
    | {"__firstlineno__", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__hash__", "__parameters__"}
    | {"__slots__"}
)
_WRITERS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "globals", "exec", "eval", "__import__"})
_READERS = frozenset({("globals",), ("eval",), ("exec",)})  # builtins that read globals by computed names
_NAMES_OF_GLOBALS = frozenset({"_getframe", "currentframe", "__globals__", "f_globals"})
_FUNCTION_ATTRIBUTES = ("__name__", "__qualname__", "__module__", "__doc__")  # not part of a code object's equality
_DICT_DESCRIPTOR = type(type("Any", (), {}).__dict__["__dict__"])
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Value:
    """The key of a backend, and descriptions of the parts that are compared by identity, for a warning of `guards.keyed`."""

    key: Hashable
    by_identity: tuple[str, ...] = ()

    @property
    def likeness(self) -> Hashable:
        """The key without the parts that are compared by identity; equal for all backends with the same code."""
        return _without_identity(self.key)


class _Identity:
    """A key that identifies one object: equal only to another key of the same object, and only while the object is alive."""

    __slots__ = ("_get", "_id", "may_change")

    def __init__(self, value: Any, *, may_change: bool = False) -> None:
        try:
            self._get: Any = ref(value)  # a key must not keep its backend alive
        except TypeError:
            self._get = lambda: value
        self._id, self.may_change = id(value), may_change

    def __eq__(self, other: object) -> bool:
        return type(other) is _Identity and other._id == self._id and other._get() is self._get() is not None

    def __hash__(self) -> int:
        return self._id


def value_of(backend: Any) -> Value:
    """Return the key of a backend as a Value; the backend is a name, a function, a partial, an instance or another object.

    - Functions are compared by code, file, attributes, defaults, closure and the globals that they read, recursively for
      functions of the user.
    - Partials and namedtuples are compared by their parts.
    - Objects whose class defines `__eq__` and `__hash__` are compared by these, and by attributes that `__eq__` ignores.
    - Other instances are compared by class, attributes and slots, if the values cannot change and only `__init__` assigns them.
    - Everything else is compared by identity, such as functions that assign outer variables or read globals by computed names.

    No code of the user is called, except for `__eq__` and `__hash__`.

    >>> from functools import partial
    >>> value_of(partial(print, sep="-")).key == value_of(partial(print, sep="-")).key
    True
    """
    reader = _Reader()
    return Value(reader.read(backend, "the backend"), tuple(dict.fromkeys(reader.by_identity)))


def options_key(options: Mapping[str, Any]) -> Hashable:
    """Return a hashable key for the options of a backend; the order of their names does not matter, as in torch."""
    return _Reader(sorts=True).options(options)


class _Reader:
    """Computes the key of one backend recursively; tracks the values being read, since they may refer to themselves."""

    def __init__(self, *, sorts: bool = False) -> None:
        self._sorts = sorts  # whether dicts of named options are sorted, so that their order does not matter
        self.by_identity: list[str] = []
        self._reading: dict[int, int] = {}  # depth by id

    def read(self, value: Any, what: str) -> Hashable:
        """Return the key of a part of the backend; `what` describes the part in a warning."""
        cls: Any = type(value)
        if value is _ABSENT:
            return "absent"
        if type(cls) is type:
            if cls in _PLAIN or (cls.__module__ == "torch" and cls.__name__ in _TORCH_PLAIN):
                return cls, value
            if cls in (float, complex):
                return cls, repr(value)  # 0.0 and -0.0 differ, nan equals nan
        if issubclass(cls, (type, ModuleType, Enum)):
            return _Identity(value)  # a class, module or enum member exists once
        if id(value) in self._reading:
            return "refers back", self._reading[id(value)]
        self._reading[id(value)] = len(self._reading)
        try:
            return self._read_parts(cls, value, what)
        finally:
            del self._reading[id(value)]

    def _read_parts(self, cls: Any, value: Any, what: str) -> Hashable:
        if cls in (tuple, frozenset):
            return cls, cls(self.read(item, what) for item in value)
        if issubclass(cls, tuple) and hasattr(cls, "_fields") and not hasattr(value, "__dict__"):
            return _Identity(cls), tuple(self.read(item, what) for item in tuple.__iter__(value))
        if cls is partial and not vars(value):
            positional = tuple(self._option(argument) for argument in value.args)
            named = tuple((name, self._option(argument)) for name, argument in sorted(value.keywords.items()))
            return partial, self.read(value.func, what), positional, named
        if cls is FunctionType:
            return self._function(value)
        if cls is MethodType and type(value.__func__) is FunctionType:
            return MethodType, self.read(value.__func__, what), self.read(value.__self__, what)
        if cls is BuiltinFunctionType:
            return BuiltinFunctionType, value.__name__, _Identity(value.__self__)
        if _defines_equality(cls) and _is_comparable(value):
            hidden = tuple((name, self.read(item, f"{what}.{name}")) for name, item in _not_compared(cls, value))
            return _Identity(cls), "equal", value, hidden
        return self._instance(cls, value, what)

    def _option(self, value: Any) -> Hashable:
        """Return the key of an argument of a `functools.partial`, or of a value in torch.compile's `options`.

        A dict with string keys is compared by its items; an empty dict by identity, as lists are: the backend may fill it.
        """
        if type(value) is dict and value and all(type(name) is str for name in value) and id(value) not in self._reading:
            self._reading[id(value)] = len(self._reading)
            key = self.options(value)
            del self._reading[id(value)]
            return key
        return self.read(value, "an option")

    def options(self, options: Mapping[str, Any]) -> Hashable:
        """Return the key of a dict of options, made of the names and the keys of the values."""
        items = sorted(options.items(), key=itemgetter(0)) if self._sorts else options.items()
        return dict, tuple((name, self._option(option)) for name, option in items)

    def _function(self, fn: Any) -> Hashable:
        code, name = fn.__code__, fn.__qualname__
        if _is_library_file(code.co_filename) and not fn.__closure__:
            return _Identity(fn)
        if _writes_outside(code):
            return self._by_identity(fn, f"{name} assigns variables outside of it or imports your modules, and")
        names = {name for inner in codes_in(code) for name in inner.co_names}
        if not _READERS.isdisjoint(read := globals_read(fn)) or not _NAMES_OF_GLOBALS.isdisjoint(names):
            return self._by_identity(fn, f"{name} reads globals by names that it computes, and")
        defaults = (*(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items()))
        contents = [cell.cell_contents if is_filled(cell) else _ABSENT for cell in fn.__closure__ or ()]
        closure = zip(code.co_freevars, contents, strict=True)
        attributes = (*sorted(vars(fn).items()), *_attributes_of(fn))
        return (
            FunctionType,
            code.co_filename,
            code,
            tuple(self.read(default, f"a default of {name}") for default in defaults),
            tuple(self.read(content, f"{variable!r}, which {name} closes over") for variable, content in closure),
            tuple((attribute, self.read(value, f"{name}.{attribute}")) for attribute, value in attributes),
            tuple((path, self.read(value, f"{'.'.join(path)!r}, which {name} reads")) for path, value in sorted(read.items())),
        )

    def _instance(self, cls: Any, value: Any, what: str) -> Hashable:
        if _never_assigns_attributes(cls):
            before = len(self.by_identity)
            members = tuple((name, self.read(member, f"{cls.__qualname__}.{name}")) for name, member in _members(cls))
            key = _Identity(cls), members, tuple((name, self.read(item, f"{what}.{name}")) for name, item in _state(cls, value))
            if len(self.by_identity) == before:
                return key
            del self.by_identity[before:]
        return self._by_identity(value, f"{what}, a {cls.__qualname__},")

    def _by_identity(self, value: Any, why: str) -> Hashable:
        self.by_identity.append(why)
        return _Identity(value, may_change=True)


def _without_identity(key: Any) -> Any:
    if type(key) in (tuple, frozenset):
        return type(key)(map(_without_identity, key))
    return "any" if type(key) is _Identity and key.may_change else key


def _is_comparable(value: Any) -> bool:
    """Return whether a value is hashable and `value == value` is True, which excludes tensors."""
    try:
        hash(value)
        return (value == value) is True
    except Exception:  # noqa: BLE001 - the user's `__hash__` and `__eq__`
        return False


def _is_library_file(file: str) -> bool:
    owner, library = owner_of_file(file)
    return owner != "user" or library is not None


def _writes_outside(code: CodeType) -> bool:
    """Return whether code assigns a global or a variable of its closure, or imports a module of the user."""
    closure = set(code.co_freevars)
    for inner in codes_in(code):
        for instruction in dis.get_instructions(inner):
            if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                return True
            if instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in closure:
                return True
            if instruction.opname == "IMPORT_NAME" and not _is_library_module(instruction.argval):
                return True
    return False


def _is_library_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return name in sys.builtin_module_names if file is None else _is_library_file(file)


def _attributes_of(fn: Any) -> list[tuple[str, Any]]:
    """Return name, qualified name, module, docstring and annotations of a function, without evaluating lazy annotations."""
    attributes = [(name, getattr(fn, name)) for name in _FUNCTION_ATTRIBUTES]
    if sys.version_info >= (3, 14):
        return [*attributes, ("__annotate__", fn.__annotate__)]  # annotations are computed by the user's code
    return [*attributes, *sorted(fn.__annotations__.items())]


def _not_compared(cls: Any, value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object that an inherited or generated `__eq__` ignores.

    If only a builtin base such as `int` defines `__eq__`, these are all attributes; else dataclass fields with `compare=False`.
    """
    state = dict(_state(cls, value))
    if not any("__eq__" in vars(base) for base in cls.__mro__ if base.__flags__ & _HEAP_TYPE):
        return sorted(state.items())
    fields = getattr(cls, "__dataclass_fields__", {})
    return [(name, state[name]) for name, field in fields.items() if not field.compare and name in state]


def _state(cls: Any, value: Any) -> list[tuple[str, Any]]:
    """Return the attributes that an instance stores in its slots and its `__dict__`, without running code of its class."""
    slots = [
        (name, _content_of_slot(member, value))
        for base in cls.__mro__
        for name, member in vars(base).items()
        if type(member) is MemberDescriptorType
    ]
    try:
        return [*slots, *object.__getattribute__(value, "__dict__").items()]
    except AttributeError:
        return slots


def _content_of_slot(slot: MemberDescriptorType, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _ABSENT


def _defines_equality(cls: Any) -> bool:
    return cls.__eq__ is not object.__eq__ and cls.__hash__ not in (None, object.__hash__)


def _members(cls: Any) -> list[tuple[str, Any]]:
    """List the names and values of the attributes that a class and its bases define, without implicit ones (`__doc__`)."""
    members = ((name, member) for base in cls.__mro__[:-1] for name, member in vars(base).items())
    return [
        (name, member) for name, member in members if name not in _IMPLICIT_MEMBERS and type(member) is not MemberDescriptorType
    ]


def _never_assigns_attributes(cls: Any) -> bool:
    """Return whether only `__init__` assigns attributes of instances, and all of them are in `__dict__` and slots.

    Otherwise a backend may change its attributes, and compile differently from call to call.
    """
    if type(cls) is not type or not all(base.__flags__ & _HEAP_TYPE for base in cls.__mro__[:-1]):
        return False  # methods in C cannot be read
    bases = [vars(base) for base in cls.__mro__[:-1]]
    if not any(type(base.get("__dict__")) is _DICT_DESCRIPTOR or "__slots__" in base for base in bases):
        return False
    methods = [member for _, member in _members(cls) if isinstance(member, FunctionType)]
    return not any(
        _assigns_attributes(method.__code__) for method in methods if method.__name__ not in ("__init__", "__post_init__")
    )


def _assigns_attributes(code: CodeType) -> bool:
    return any(
        not _WRITERS.isdisjoint(inner.co_names)
        or any(instruction.opname in ("STORE_ATTR", "DELETE_ATTR") for instruction in dis.get_instructions(inner))
        for inner in codes_in(code)
    )
