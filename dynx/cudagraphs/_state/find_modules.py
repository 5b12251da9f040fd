"""Find the nn.Modules and tensors that a function uses: in itself, its bound object, closure and globals.

They are found by the names in code: in variables, attributes of objects and of classes, lists and dicts. The user's
functions and methods that it uses are searched in the same way. Not followed: names that are computed, as by
`getattr(owner, name)`, functions of libraries, and objects in containers of more than a hundred elements.
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
from dynx.cudagraphs._state.code_names import FUNCTIONS, bound_objects, cells_of, is_empty, levels, names_in, plain_functions

Values = tuple[Any, ...]


class _Edge(NamedTuple):
    """A reference from an object to values, which a search for modules follows."""

    owner: int  # id of the object
    values: Values
    read: Callable[[], Values] | None = None  # reads the values again; None where they cannot change


def modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Return the nn.Modules that a function uses now, without submodules of these."""
    return _Search(function).modules


def tensors_named_by(function: Callable[..., Any]) -> list[torch.Tensor]:
    """Return the tensors that a function reaches by names, besides parameters and buffers of modules; each once."""
    values = (value for edge in _Search(function).edges for value in edge.values)
    return list({id(value): value for value in values if _is_tensor(value)}.values())


def binding_check(function: Callable[..., Any]) -> Callable[[], bool] | None:
    """Return a predicate that is true while the names by which a function reaches modules and tensors have the same values.

    Returns None if there are no such names.
    """
    bindings = [(edge.read, edge.values) for edge in _Search(function).edges if edge.read is not None]
    if not bindings:
        return None

    def are_bound() -> bool:
        try:
            return all(_are_same(read(), values) for read, values in bindings)
        except (ValueError, AttributeError):  # a variable or attribute was deleted
            return False

    return are_bound


def binding_key(function: Callable[..., Any]) -> tuple[tuple[int, ...], ...]:
    """Return a key that changes if a name that the function uses is bound to another module or tensor."""
    ids = (tuple(id(value) for value in edge.values if _is_used(value)) for edge in _Search(function).edges)
    return tuple(modules for modules in ids if modules)


def _are_same(current: Values, expected: Values) -> bool:
    """Return whether these are the same objects; numbers, which are lengths of containers, are compared by value."""
    if len(current) == 1 == len(expected):
        return current[0] is expected[0]
    return len(current) == len(expected) and all(
        now is then or (type(now) is int and now == then) for now, then in zip(current, expected, strict=True)
    )


def unset_closure_variables(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's closure variables that have no value yet."""
    return [
        name
        for inner in plain_functions(function)
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
        if is_empty(cell) and name != inner.__code__.co_name  # the function itself, which may be recursive
    ]


class _Search:
    """A search from a function over everything that it uses, by the names in its code.

    Functions that are found add names, and names lead to more functions: the queue of objects is searched again with all
    names until no new name is added.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._scopes = [inner.__globals__ for inner in plain_functions(function)]
        self._names = set(_IMPLICIT_NAMES)
        self._slots: dict[int, list[MemberDescriptorType]] = {}
        names_before = 0
        while names_before < len(self._names):
            names_before = len(self._names)
            self._edges: list[_Edge] = []
            self._visited: dict[int, Any] = {}  # held, so that no other object gets the address of one
            self._queue = deque([function])
            while self._queue and len(self._visited) < _MAX_OBJECTS:
                self._visit(self._queue.popleft())
        found = [value for value in self._visited.values() if _is_module(value)]
        leading = self._leading_to(found)
        self.modules = _outermost(found)
        self.edges = [
            edge for edge in self._edges if any(id(value) in leading for value in edge.values) or self._reads_tensors(edge)
        ]

    def _reads_tensors(self, edge: _Edge) -> bool:
        """Return whether an edge leads to tensors, and not from a module, whose attributes are checked in another way."""
        return any(map(_is_tensor, edge.values)) and not _is_module(self._visited.get(edge.owner))

    def _leading_to(self, modules: list[nn.Module]) -> set[int]:
        """Return the ids of the modules, and of the objects through which the search reached them."""
        owners = dict[int, list[int]]()
        for edge in self._edges:
            for value in edge.values:
                owners.setdefault(id(value), []).append(edge.owner)
        leading, pending = set[int](), [id(module) for module in modules]
        while pending:
            if (address := pending.pop()) not in leading:
                leading.add(address)
                pending += owners.get(address, ())
        return leading

    def _follow(self, owner: Any, read: Callable[[], Values]) -> None:
        """Add the values that `read` returns to the search; they may change, so they are checked in later calls."""
        values = read()
        self._edges.append(_Edge(id(owner), values, read))
        self._queue += values

    def _follow_constant(self, owner: Any, value: Any) -> None:
        self._edges.append(_Edge(id(owner), (value,)))
        self._queue.append(value)

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if id(value) in self._visited or issubclass(kind, _LEAVES):
            return
        self._visited[id(value)] = value
        if issubclass(kind, FUNCTIONS):
            if value is self._function or any(map(self._is_followed, plain_functions(value))):
                self._visit_function(value)
        elif issubclass(kind, (list, tuple, deque, dict, set)):
            if len(value) <= _LONG:
                self._follow(value, _element_reader(value, _is_followed))
            elif len(value) <= _LONGEST and not issubclass(kind, set):  # data, probably
                self._follow(value, _element_reader(value, _is_used))
        elif issubclass(kind, ref):
            self._follow(value, lambda: (value(),))
        elif issubclass(kind, ModuleType):
            if value.__name__.partition(".")[0] != "torch":
                self._visit_names(value, vars(value), self._names)
        elif issubclass(kind, type):
            self._visit_class(value)
        else:
            self._visit_object(value)

    def _visit_function(self, function: Any) -> None:
        for level in levels(function):
            for value in bound_objects(level):
                self._follow_constant(function, value)
        for inner in plain_functions(function):
            names = names_in(inner.__code__)
            self._names |= names.attributes
            for cell in cells_of(inner):
                self._follow(function, partial(_cell_content, cell))
            for defaults in ("__defaults__", "__kwdefaults__"):
                self._follow(function, partial(_attribute, inner, defaults))
            self._visit_names(function, inner.__globals__, names.variables)

    def _visit_names(self, owner: Any, scope: dict[str, Any], names: Set[str]) -> None:
        for name in _common(scope, names):
            self._follow(owner, partial(_item, scope, name))

    def _visit_object(self, value: Any) -> None:
        self._follow_constant(value, type(value))
        attributes = _dict_of(value)
        if attributes is not None:
            self._visit_names(value, attributes, self._names)
        for slot in self._slots_of(type(value)):
            if slot.__name__ in self._names:
                self._follow(value, partial(_slot, slot, value))

    def _slots_of(self, kind: type) -> list[MemberDescriptorType]:
        if id(kind) not in self._slots:
            attributes = (value for base in kind.__mro__ for value in vars(base).values())
            self._slots[id(kind)] = [value for value in attributes if type(value) is MemberDescriptorType]
        return self._slots[id(kind)]

    def _visit_class(self, kind: type) -> None:
        """Search the attributes and methods of a class and its bases whose names occur in the code."""
        for base in kind.__mro__:
            for name in _common(vars(base), self._names):
                value = vars(base)[name]
                inner = _function_behind(value)
                if inner is not None:
                    if any(map(self._is_followed, plain_functions(inner))):
                        self._follow_constant(kind, inner)
                elif type(value) is not MemberDescriptorType:
                    self._follow(kind, partial(_item, vars(base), name))

    def _is_followed(self, function: FunctionType) -> bool:
        """Return whether the code of a function is searched: it is the user's or of the same file, not of a library."""
        is_same_file = any(function.__globals__ is scope for scope in self._scopes)
        return is_same_file or owner_of_file(function.__code__.co_filename)[0] == "user"


_LONG, _LONGEST = 100, 10_000  # up to this many elements of a container all are followed; up to this many, modules are
_MAX_OBJECTS = 2_000
_IMPLICIT_NAMES = ("__call__", "__getitem__", "__getattr__", "__iter__", "__init__", "forward")  # called without being named
_LEAVES = type(None), bool, int, float, str, bytes, torch.Tensor, torch.dtype, torch.device


def _function_behind(value: Any) -> Any:
    """Return the function of a method, property, class method, static method or cached property; None for other attributes."""
    kind = type(value)
    if issubclass(kind, property):
        return value.fget
    if issubclass(kind, (classmethod, staticmethod)):
        return value.__func__
    if issubclass(kind, cached_property):
        return value.func
    return value if kind is FunctionType else None


def _outermost(modules: list[nn.Module]) -> list[nn.Module]:
    """Return the modules that are not submodules of other modules in the list."""
    if len(modules) < 2:
        return modules
    inner = {id(module) for outer in modules for module in outer.modules() if module is not outer}
    return [module for module in modules if id(module) not in inner]


def _common(scope: Mapping[str, Any], names: Set[str]) -> list[str]:
    if len(scope) < len(names):
        return sorted(name for name in tuple(scope) if name in names)
    return sorted(name for name in names if name in scope)


def _is_followed(value: Any) -> bool:
    return _is_tensor(value) or not issubclass(type(value), _LEAVES)


def _is_module(value: Any) -> bool:
    return issubclass(type(value), nn.Module)


def _is_tensor(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)


def _is_used(value: Any) -> bool:
    return issubclass(type(value), (nn.Module, torch.Tensor))


def _element_reader(container: Any, is_followed: Callable[[Any], bool]) -> Callable[[], Values]:
    """Return a function that reads the length of a container, and the elements for which `is_followed` is true."""
    if isinstance(container, dict):
        keys = sorted((key for key, value in tuple(container.items()) if is_followed(value)), key=_sort_key)
        return lambda: (len(container), *map(container.get, keys))
    if isinstance(container, set):
        return partial(tuple, container)
    indices = [index for index, value in enumerate(tuple(container)) if is_followed(value)]
    return lambda: (len(container), *(container[index] for index in indices if index < len(container)))


def _sort_key(key: Any) -> tuple[str, Any]:
    return type(key).__name__, key if type(key) in (str, int) else id(key)


def _cell_content(cell: Any) -> Values:
    return (cell.cell_contents,)


def _attribute(owner: Any, name: str) -> Values:
    return (getattr(owner, name),)


def _item(scope: Mapping[str, Any], name: str) -> Values:
    return (scope.get(name),)


def _slot(slot: Any, owner: Any) -> Values:
    try:
        return (slot.__get__(owner, type(owner)),)
    except AttributeError:  # the slot has no value; `__getattr__` of the object is not called, since it may compute one
        return (None,)


def _dict_of(value: Any) -> dict[str, Any] | None:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return attributes if type(attributes) is dict else None


def modules_holding(params: Sequence[torch.Tensor]) -> list[nn.Module]:
    """Find nn.Modules that together own these parameters, among all modules that are alive in this process.

    Modules that hold most of them are preferred, and of these the largest: layers without parameters matter too.
    """
    missing = {id(param) for param in params}
    if not missing:
        return []
    candidates = [(module, held) for module in _all_modules() if (held := _params_of(module) & missing)]
    holding = []
    while missing:
        module, held = max(
            candidates,
            key=lambda candidate: (len(candidate[1] & missing), _count_modules(candidate[0])),
            default=(None, set[int]()),
        )
        if module is None or not held & missing:
            break  # the rest belongs to no module
        holding.append(module)
        missing -= held
    return holding


def _all_modules() -> list[nn.Module]:
    return [value for value in gc.get_objects() if issubclass(type(value), nn.Module)]


def _params_of(module: nn.Module) -> set[int]:
    try:
        return {id(param) for param in nn.Module.parameters(module)}
    except (AttributeError, TypeError):  # its constructor raised
        return set()


def _count_modules(module: nn.Module) -> int:
    return sum(1 for _ in module.modules())
