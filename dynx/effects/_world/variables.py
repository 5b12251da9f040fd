"""Find the global variables, class attributes and module attributes that a function may read or change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from dynx._bytecode.globals_read import codes_in
from dynx._trace.user_location import owner_of_file
from dynx.effects._world.layout import ABSENT

_NOT_OF_USER = ("__", "_abc_", "_torchdynamo", "_dynamo")
_NEVER_STATE = (FunctionType, MethodType, staticmethod, classmethod, property)


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable outside of a function's arguments: a global, or an attribute of a class or module."""

    path: str  # "globals.count", "Counter.total", "settings.limit"
    owner: dict[str, Any] | type
    name: str

    @property
    def key(self) -> tuple[int, str]:
        return id(self.owner), self.name

    def get(self) -> Any:
        """Return its value; `ABSENT` if it is not set."""
        return (self.owner.__dict__ if isinstance(self.owner, type) else self.owner).get(self.name, ABSENT)

    def set(self, value: Any) -> None:
        if value is self.get():
            return
        if isinstance(self.owner, type):
            if value is ABSENT:
                type.__delattr__(self.owner, self.name)
            else:
                type.__setattr__(self.owner, self.name, value)
        elif value is ABSENT:
            self.owner.pop(self.name, None)
        else:
            self.owner[self.name] = value


@dataclass(frozen=True, eq=False)
class Namespace:
    """Where code may make new variables: a class, a module, or the attributes of a function."""

    path: str
    owner: dict[str, Any] | type

    def names(self) -> set[str]:
        """Return the names that it has, without those of Python and torch."""
        names = self.owner.__dict__ if isinstance(self.owner, type) else self.owner
        return {name for name in tuple(names) if isinstance(name, str) and not name.startswith(_NOT_OF_USER)}


def variables_of_function(fn: FunctionType) -> Iterator[Variable | Namespace]:
    """Yield the attributes of a function of the user, and the globals that its code names with those in modules and classes."""
    if not is_of_user(fn.__code__):
        return
    namespace = Namespace(fn.__qualname__, fn.__dict__)
    yield namespace
    for name in sorted(namespace.names()):
        yield Variable(f"{namespace.path}.{name}", fn.__dict__, name)
    names: set[str] = set()
    for code in codes_in(fn.__code__):
        names.update(code.co_names)
    for name in sorted(names & fn.__globals__.keys()):
        value = fn.__globals__[name]
        if type(value) is ModuleType:
            yield from _variables_of_module(value, names)
        elif isinstance(value, type):
            yield from variables_of_class(value)
        else:
            yield Variable(f"globals.{name}", fn.__globals__, name)
    for name in sorted(_assigned_globals(fn.__code__) - fn.__globals__.keys()):
        yield Variable(f"globals.{name}", fn.__globals__, name)


def variables_of_class(cls: type) -> Iterator[Variable | Namespace]:
    """Yield the attributes of a class of the user that are neither methods nor set by Python."""
    for owner in cls.__mro__:
        if not _is_class_of_user(owner):
            continue
        yield Namespace(owner.__qualname__, owner)
        for name, value in tuple(owner.__dict__.items()):
            is_data = not isinstance(value, _NEVER_STATE) and not hasattr(type(value), "__set__")
            if is_data and not name.startswith(_NOT_OF_USER):
                yield Variable(f"{owner.__qualname__}.{name}", owner, name)


def methods_of(cls: type) -> Iterator[FunctionType]:
    """Yield the methods of a class that the user wrote, also inherited ones."""
    for owner in cls.__mro__:
        if _is_class_of_user(owner):
            for value in tuple(owner.__dict__.values()):
                inner = getattr(value, "__func__", None) if isinstance(value, (staticmethod, classmethod)) else value
                accessors = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (inner,)
                yield from (accessor for accessor in accessors if type(accessor) is FunctionType)


def is_of_user(code: CodeType) -> bool:
    """Return whether the user wrote this code, not a library."""
    return owner_of_file(code.co_filename).kind == "user"


def _variables_of_module(module: ModuleType, names: Iterable[str]) -> Iterator[Variable | Namespace]:
    file = getattr(module, "__file__", None)
    if file is None or owner_of_file(file).kind != "user":
        return
    yield Namespace(module.__name__, vars(module))
    for name in sorted(set(names) & vars(module).keys()):
        value = vars(module)[name]
        if isinstance(value, type):
            yield from variables_of_class(value)
        elif type(value) is not ModuleType:
            yield Variable(f"{module.__name__}.{name}", vars(module), name)


def _is_class_of_user(cls: type) -> bool:
    functions = [value for value in cls.__dict__.values() if type(value) is FunctionType]
    if functions:
        return any(is_of_user(function.__code__) for function in functions)
    import sys

    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return cls.__module__ == "__main__" or (file is not None and owner_of_file(file).kind == "user")


def _assigned_globals(code: CodeType) -> set[str]:
    import dis

    stores = ("STORE_GLOBAL", "DELETE_GLOBAL")
    return {step.argval for part in codes_in(code) for step in dis.get_instructions(part) if step.opname in stores}
