"""Which modules a function uses: itself, its object, what it closes over, its globals; those of what it wraps too.

Modules are found in attributes of objects too, and in lists and dicts; the user's functions and methods that it uses are looked
at as it is itself. Not followed: what is computed, such as `getattr(owner, name)`, and functions of libraries.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from inspect import getattr_static
from operator import attrgetter
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from dynx._trace.userline import owner_of_file


class _Binding(NamedTuple):
    """A way to a module: a variable, an attribute, or the elements of a container."""

    read: Callable[[], Any]
    found: Any  # a tuple of elements


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Find the modules that a function uses now."""
    return [function] if isinstance(function, nn.Module) else _Search(function).modules


def binding_check(function: Callable[..., Any]) -> Callable[[], bool] | None:
    """Give what tells whether the names by which a function finds modules stand for those of now; None where there are none."""
    bindings = [] if isinstance(function, nn.Module) else _Search(function).bindings
    if not bindings:
        return None

    def are_bound() -> bool:
        try:
            return all(_is_same(read(), found) for read, found in bindings)
        except ValueError:  # a variable was deleted
            return False

    return are_bound


def _is_same(now: Any, found: Any) -> bool:
    if type(found) is not tuple:
        return now is found
    return len(now) == len(found) and all(one is other for one, other in zip(now, found, strict=True))


def unset(function: Callable[..., Any]) -> list[str]:
    """Name the variables around a function that have no value yet."""
    return [
        name
        for inner in _plain(function)
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
        if _is_empty(cell) and name != inner.__code__.co_name  # itself, which it may call
    ]


class _Search:
    """Goes from a function to what it uses, by the names in its code."""

    def __init__(self, function: Any) -> None:
        self._scopes = [each.__globals__ for each in _plain(function)]
        self._attributes: set[str] = set()  # that one of the functions asks for
        known = -1
        while known < len(self._attributes):  # a function that is found later asks for more
            known = len(self._attributes)
            self.modules: list[nn.Module] = []
            self.bindings: list[_Binding] = []
            self._found: dict[int, bool] = {}  # whether there are modules in what was looked at
            self._held: list[Any] = []  # so that no other gets its address
            self._left = _MANY  # elements of containers
            self._function(function)

    def _function(self, function: Any) -> bool:
        """Tell whether a function uses modules."""
        found = [self._value(each) for level in _levels(function) for each in _given(level)]
        for each in _plain(function):
            names = _names(each.__code__)
            self._attributes |= names.attributes
            full = (cell for cell in each.__closure__ or () if not _is_empty(cell))
            found += [self._way(partial(_content, cell), _content(cell)) for cell in full]
            found.append(self._named(each.__globals__, names.variables))
        return any(found)

    def _named(self, scope: Mapping[str, Any], names: Iterable[str]) -> bool:
        found = [self._way(partial(scope.get, each), scope[each]) for each in sorted(names) if each in scope]
        return any(found)

    def _way(self, read: Callable[[], Any], value: Any) -> bool:
        if found := self._value(value):
            self.bindings.append(_Binding(read, value))
        return found

    def _value(self, value: Any) -> bool:
        if isinstance(value, _WITHOUT):
            return False
        if id(value) not in self._found:
            self._found[id(value)] = False  # while it is looked at
            self._held.append(value)
            self._found[id(value)] = self._look_into(value)
        return self._found[id(value)]

    def _look_into(self, value: Any) -> bool:
        if isinstance(value, nn.Module):
            self.modules.append(value)
            return True
        if isinstance(value, _FUNCTIONS):
            return self._is_near(_plain(value)) and self._function(value)
        if type(value) in (list, tuple, dict):
            if len(value) > min(_LONG, self._left):  # data
                return False
            self._left -= len(value)
            elements = value.values() if isinstance(value, dict) else value
            found = [self._value(each) for each in tuple(elements)]
            if any(found):
                self.bindings.append(_Binding(partial(tuple, elements), tuple(elements)))
            return any(found)
        if isinstance(value, ModuleType):
            return not value.__name__.startswith("torch") and self._named(vars(value), self._attributes)
        attributes = getattr_static(value, "__dict__", None)
        return attributes is not None and self._object(value)

    def _object(self, value: Any) -> bool:
        """Look at the attributes of an object that are asked for, in its methods too."""
        todo = ["__call__", *self._attributes]
        while todo:
            method = getattr_static(type(value), todo.pop(), None)
            method = getattr(method, "fget", getattr(method, "__func__", method))  # of a property, of a class method
            if isinstance(method, FunctionType) and self._is_near([method]):
                todo += (more := _names(method.__code__).attributes - self._attributes)
                self._attributes |= more
        return self._named(vars(value), self._attributes)

    def _is_near(self, functions: Sequence[FunctionType]) -> bool:
        """Tell whether one of some functions is the user's, or of the same file: those of libraries lead far."""
        is_same = any(each.__globals__ is scope for each in functions for scope in self._scopes)
        return is_same or any(owner_of_file(each.__code__.co_filename)[0] == "user" for each in functions)


_LONG, _MANY = 1_000, 20_000  # elements of one container that is looked into, and of all
_FUNCTIONS = FunctionType, MethodType, partial
_WITHOUT = type(None), bool, int, float, str, bytes, type, torch.Tensor, torch.dtype, torch.device
_content = attrgetter("cell_contents")


class _Names(NamedTuple):
    """What code asks for, with the functions, generators and classes within it."""

    variables: frozenset[str]
    attributes: frozenset[str]


@lru_cache(1024)
def _names(code: CodeType) -> _Names:
    found = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    variables = (name for kind, name in found if kind in ("LOAD_GLOBAL", "LOAD_NAME"))
    attributes = (name for kind, name in found if kind in ("LOAD_ATTR", "LOAD_METHOD"))
    return _Names(
        frozenset(variables).union(*(each.variables for each in inner)),
        frozenset(attributes).union(*(each.attributes for each in inner)),
    )


def _given(level: Any) -> tuple[Any, ...]:
    """Give the object that a method is of, what a partial holds, and an object that is called itself."""
    if isinstance(level, partial):
        return (*level.args, *level.keywords.values())
    return (getattr(level, "__self__", None),) if isinstance(level, _FUNCTIONS) else (level,)


def _plain(function: Any) -> list[FunctionType]:
    """Give the functions behind wrappers, methods and objects that are called; none where they are written in C."""
    inner = (getattr(each, "__func__", each) for each in _levels(function))
    called = (each if isinstance(each, (FunctionType, nn.Module)) else getattr_static(type(each), "__call__") for each in inner)
    return [each for each in called if isinstance(each, FunctionType)]


_DEEP = 100  # wrappers: an object may say that it wraps ever new ones


def _levels(function: Any) -> Iterator[Any]:
    """Give a function, and what it wraps in turn."""
    seen = set[int]()
    while function is not None and id(function) not in seen and len(seen) < _DEEP:
        seen.add(id(function))
        yield function
        function = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # what it is for comes later
        return True
    return False
