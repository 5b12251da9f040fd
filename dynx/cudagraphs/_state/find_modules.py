"""Which modules a function uses: itself, its object, what it closes over, its globals; those of what it wraps too.

Modules are found by the names in code: in variables, attributes of objects and of classes, lists and dicts. The user's
functions and methods that it uses are looked at as it is itself. Not followed: what is computed, as by `getattr(owner, name)`,
functions of libraries, and objects in containers of more than a hundred elements.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, partial
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import nn

from dynx._trace.user_location import owner_of_file
from dynx.cudagraphs._state.code_names import FUNCTIONS, cells_of, given_to, is_empty, levels, names_in, plain_functions


class _Way(NamedTuple):
    """How one thing is found in another: what was found, and what reads it now, where it may change."""

    owner: int
    found: tuple[Any, ...]
    read: Callable[[], tuple[Any, ...]] | None = None


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Find the modules that a function uses now."""
    return _Search(function).modules


def binding_check(function: Callable[..., Any]) -> Callable[[], bool] | None:
    """Give what tells whether the names by which a function finds modules stand for those of now; None where there are none."""
    bindings = [(each.read, each.found) for each in _Search(function).ways if each.read is not None]
    if not bindings:
        return None

    def are_bound() -> bool:
        try:
            return all(_are_same(read(), found) for read, found in bindings)
        except (ValueError, AttributeError):  # it was deleted
            return False

    return are_bound


def binding_key(function: Callable[..., Any]) -> tuple[tuple[int, ...], ...]:
    """Give which names stand for which modules."""
    found = (tuple(id(one) for one in each.found if _is_module(one)) for each in _Search(function).ways)
    return tuple(each for each in found if each)


def _are_same(now: tuple[Any, ...], found: tuple[Any, ...]) -> bool:
    """Tell whether there are the same objects, or the same number of elements."""
    if len(now) == 1 == len(found):
        return now[0] is found[0]
    return len(now) == len(found) and all(
        one is other or (type(one) is int and one == other) for one, other in zip(now, found, strict=True)
    )


def unset(function: Callable[..., Any]) -> list[str]:
    """Name the variables around a function that have no value yet."""
    return [
        name
        for inner in plain_functions(function)
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
        if is_empty(cell) and name != inner.__code__.co_name  # itself, which it may call
    ]


class _Search:
    """Goes from a function to what it uses, until no other names are asked for."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._scopes = [each.__globals__ for each in plain_functions(function)]
        self._attributes = set(_CALLED)
        self._slots: dict[int, list[MemberDescriptorType]] = {}
        known = 0
        while known < len(self._attributes):
            known = len(self._attributes)
            self._ways: list[_Way] = []
            self._seen: dict[int, Any] = {}  # what was looked at; held, so that no other gets its address
            self._todo = deque([function])
            while self._todo and len(self._seen) < _MANY:
                self._look_at(self._todo.popleft())
        found = [each for each in self._seen.values() if _is_module(each)]
        leads = self._leading_to(found)
        self.modules = _outermost(found)
        self.ways = [each for each in self._ways if any(id(one) in leads for one in each.found)]

    def _leading_to(self, modules: list[nn.Module]) -> set[int]:
        """Give what modules are found through."""
        owners = dict[int, list[int]]()
        for way in self._ways:
            for each in way.found:
                owners.setdefault(id(each), []).append(way.owner)
        leads, todo = set[int](), [id(each) for each in modules]
        while todo:
            if (each := todo.pop()) not in leads:
                leads.add(each)
                todo += owners.get(each, ())
        return leads

    def _way(self, owner: Any, read: Callable[[], tuple[Any, ...]]) -> None:
        found = read()
        self._ways.append(_Way(id(owner), found, read))
        self._todo += found

    def _given(self, owner: Any, value: Any) -> None:
        self._ways.append(_Way(id(owner), (value,)))
        self._todo.append(value)

    def _look_at(self, value: Any) -> None:
        kind = type(value)
        if id(value) in self._seen or issubclass(kind, _WITHOUT):
            return
        self._seen[id(value)] = value
        if issubclass(kind, FUNCTIONS):
            if value is self._function or any(map(self._is_near, plain_functions(value))):
                self._look_at_function(value)
        elif issubclass(kind, (list, tuple, deque, dict, set)):
            if len(value) <= _LONG:
                self._way(value, _reading_elements(value, _may_lead_on))
            elif len(value) <= _LONGEST and not issubclass(kind, set):  # data, perhaps
                self._way(value, _reading_elements(value, _is_module))
        elif issubclass(kind, ref):
            self._way(value, lambda: (value(),))
        elif issubclass(kind, ModuleType):
            if value.__name__.partition(".")[0] != "torch":
                self._look_at_names(value, vars(value), self._attributes)
        elif issubclass(kind, type):
            self._look_at_class(value)
        else:
            self._look_at_object(value)

    def _look_at_function(self, function: Any) -> None:
        for level in levels(function):
            for each in given_to(level):
                self._given(function, each)
        for inner in plain_functions(function):
            names = names_in(inner.__code__)
            self._attributes |= names.attributes
            for cell in cells_of(inner):
                self._way(function, partial(_content, cell))
            for given in ("__defaults__", "__kwdefaults__"):
                self._way(function, partial(_attribute, inner, given))
            self._look_at_names(function, inner.__globals__, names.variables)

    def _look_at_names(self, owner: Any, scope: dict[str, Any], names: Set[str]) -> None:
        for name in _in_both(scope, names):
            self._way(owner, partial(_value, scope, name))

    def _look_at_object(self, value: Any) -> None:
        self._given(value, type(value))
        attributes = _dict_of(value)
        if attributes is not None:
            self._look_at_names(value, attributes, self._attributes)
        for slot in self._slots_of(type(value)):
            if slot.__name__ in self._attributes:
                self._way(value, partial(_slot, slot, value))

    def _slots_of(self, kind: type) -> list[MemberDescriptorType]:
        if id(kind) not in self._slots:
            every = (slot for each in kind.__mro__ for slot in vars(each).values())
            self._slots[id(kind)] = [each for each in every if type(each) is MemberDescriptorType]
        return self._slots[id(kind)]

    def _look_at_class(self, kind: type) -> None:
        """Look at attributes of a class and of those that it is made from, and at the methods that are used."""
        for each in kind.__mro__:
            for name in _in_both(vars(each), self._attributes):
                value = vars(each)[name]
                inner = _function_in(value)
                if inner is not None:
                    if any(map(self._is_near, plain_functions(inner))):
                        self._given(kind, inner)
                elif type(value) is not MemberDescriptorType:
                    self._way(kind, partial(_value, vars(each), name))

    def _is_near(self, function: FunctionType) -> bool:
        """Tell whether a function is the user's, or of the same file: those of libraries lead far."""
        is_same = any(function.__globals__ is scope for scope in self._scopes)
        return is_same or owner_of_file(function.__code__.co_filename)[0] == "user"


_LONG, _LONGEST = 100, 10_000  # elements of a container all of which are looked at; of one of which only modules are
_MANY = 2_000  # objects
_CALLED = ("__call__", "__getitem__", "__getattr__", "__iter__", "__init__", "forward")  # without being named
_WITHOUT = type(None), bool, int, float, str, bytes, torch.Tensor, torch.dtype, torch.device


def _function_in(value: Any) -> Any:
    """Give the function behind an attribute of a class; None where it is none."""
    kind = type(value)
    if issubclass(kind, property):
        return value.fget
    if issubclass(kind, (classmethod, staticmethod)):
        return value.__func__
    if issubclass(kind, cached_property):
        return value.func
    return value if kind is FunctionType else None


def _outermost(modules: list[nn.Module]) -> list[nn.Module]:
    """Leave out modules that are parts of others."""
    if len(modules) < 2:
        return modules
    inner = {id(each) for outer in modules for each in outer.modules() if each is not outer}
    return [each for each in modules if id(each) not in inner]


def _in_both(scope: Mapping[str, Any], names: Set[str]) -> list[str]:
    if len(scope) < len(names):
        return sorted(each for each in tuple(scope) if each in names)
    return sorted(each for each in names if each in scope)


def _may_lead_on(value: Any) -> bool:
    return not issubclass(type(value), _WITHOUT)


def _is_module(value: Any) -> bool:
    return issubclass(type(value), nn.Module)


def _reading_elements(container: Any, is_followed: Callable[[Any], bool]) -> Callable[[], tuple[Any, ...]]:
    """Give what reads how many elements there are, and those that may lead to modules."""
    if isinstance(container, dict):
        keys = sorted((key for key, each in tuple(container.items()) if is_followed(each)), key=_order)
        return lambda: (len(container), *map(container.get, keys))
    if isinstance(container, set):
        return partial(tuple, container)
    indices = [index for index, each in enumerate(tuple(container)) if is_followed(each)]
    return lambda: (len(container), *(container[index] for index in indices if index < len(container)))


def _order(key: Any) -> tuple[str, Any]:
    return type(key).__name__, key if type(key) in (str, int) else id(key)


def _content(cell: Any) -> tuple[Any, ...]:
    return (cell.cell_contents,)


def _attribute(owner: Any, name: str) -> tuple[Any, ...]:
    return (getattr(owner, name),)


def _value(scope: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    return (scope.get(name),)


def _slot(slot: Any, owner: Any) -> tuple[Any, ...]:
    try:
        return (slot.__get__(owner, type(owner)),)
    except AttributeError:  # it has no value; the owner is not asked, since it may compute one
        return (None,)


def _dict_of(value: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


def owners_of(parameters: Sequence[torch.Tensor]) -> list[nn.Module]:
    """Find modules that together hold these parameters: those that hold the most of them, and of these the largest: layers
    beside them have a say too.
    """
    missing = {id(each) for each in parameters}
    if not missing:
        return []
    holding = [(each, held) for each in _modules() if (held := _held_by(each) & missing)]
    found = []
    while missing:
        owner, held = max(holding, key=lambda each: (len(each[1] & missing), _size(each[0])), default=(None, set[int]()))
        if owner is None or not held & missing:
            break  # of no module
        found.append(owner)
        missing -= held
    return found


def _modules() -> list[nn.Module]:
    return [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]


def _held_by(module: nn.Module) -> set[int]:
    try:
        return {id(one) for one in nn.Module.parameters(module)}
    except (AttributeError, TypeError):  # it was never finished
        return set()


def _size(module: nn.Module) -> int:
    return sum(1 for _ in module.modules())
