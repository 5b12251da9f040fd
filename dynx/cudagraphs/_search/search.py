"""Find what a function uses by the names in its code: modules, tensors, and the Python values that it reads.

The search follows variables, attributes of objects and classes, lists and dicts. The user's functions and methods that the
function uses are searched in the same way. In modules and objects of libraries, such as the models of transformers, the search
follows what the code of their classes names: a model's `config`, or the tensors that `update` assigns in a key-value cache. In
torch's optimizers, schedulers and gradient scalers, whose code is not searched, it follows all attributes. The library that
defines an optimizer is searched like the user's code. Names without a value are recorded too: one that gets a value later may
hide a variable of the same name. The search does not follow computed names, as in `getattr(owner, name)` with a variable, nor
functions of other libraries. In containers of more than a hundred elements, it follows at most modules and tensors.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Set
from enum import Enum
from functools import cached_property, partial
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeGuard
from weakref import ref

import torch
from torch import nn
from torch.autograd import Function

from dynx._reading.names import modules_named_in, names_in
from dynx._reading.owner import owner_of_class
from dynx._reading.user_location import owner_of_file
from dynx._reading.variables import Variable
from dynx._torch.compilation.unwrap import unwrap
from dynx.cudagraphs._search import readers
from dynx.cudagraphs._search.code_names import FUNCTIONS, bound_objects, cells_of, module_of, names_of_class, plain_functions
from dynx.cudagraphs._search.hidden_state import reader_of_state
from dynx.cudagraphs._search.identity import PLAIN
from dynx.cudagraphs._search.optimizers import objects_in
from dynx.cudagraphs._search.readers import OF_C, Scope, Values, attributes_of, hooks_of, is_mutable, is_of_library

HIDDEN = "the state"  # of an object without attributes


class Edge(NamedTuple):
    """A reference that the search followed, and its values: a variable, an attribute, or elements of a container."""

    owner: int  # id of the object
    name: str  # of the attribute or variable; "" for a closure variable or the elements of a container
    values: Values
    read: Callable[[], Values] | None = None  # reads the values again; None if they cannot change
    scope: Scope | None = None  # in which the name has the value, if it is looked up in a dict
    kind: str = ""  # name of the owner's class

    def __str__(self) -> str:
        is_function = self.kind in ("function", "method")
        if self.name == HIDDEN:
            return f"{self.name} of a {self.kind}"
        if not self.name:
            return "a closure variable" if is_function else f"an element of a {self.kind}"
        if is_function or self.kind == "module":
            return f"variable {self.name}"
        return f"attribute {self.name} of a {'class' if self.kind == 'type' else self.kind}"


class Search:
    """A search from a function over everything that it uses, by the names in its code.

    Functions that are found add names, and names lead to more functions: the queue of objects is searched again with all
    names until no new name is added.

    Args:
        function: Where the search begins.
        skipped: What the caller leaves out: names that are not followed, as pairs (id of a dict, name), and values of an
            `Edge` that are not compared, as (owner, name, index of the value).

    Attributes:
        modules: The modules that were found, without submodules of these.
        edges: The references to values that the function reads, and the references that lead to these values or to modules.
            Attributes of modules are only among the latter.
        absent: Maps the id of a dict or class to the dict (of a class: its `__dict__`) and the names in the code that it lacks.
        names: The names of attributes in the code.
        objects: The objects and containers that were found, besides modules, classes and functions.
        optimizers: The optimizers among these objects.
        functions: The functions whose code was searched.
        variables: The globals that the code assigns, its closure variables, and attributes of classes that it may assign.
        assigned: The names of attributes that the code assigns.
    """

    def __init__(self, function: Any, skipped: Collection[Hashable] = ()) -> None:
        self._function, self.skipped = function, skipped
        self._scopes = [inner.__globals__ for inner in plain_functions(function)]
        self._libraries = set[str]()  # of optimizers, whose code is searched
        self.names, self.assigned = set(_IMPLICIT_NAMES), set[str]()
        self._names_of_objects = set[str]()  # in the code of classes of objects
        self._slots: dict[int, list[MemberDescriptorType]] = {}
        bound = bound_objects(function)
        self._is_step = any(issubclass(type(value), torch.optim.Optimizer) for value in bound)
        self._method_of = bound[0] if type(function) is MethodType else None  # hooks of this module run outside of its method
        known = 0
        while known < len(self.names) + len(self._libraries):
            known = len(self.names) + len(self._libraries)
            self._names_of: dict[type, frozenset[str]] = {}
            self._edges: list[Edge] = []
            self.optimizers: list[torch.optim.Optimizer] = []
            self.functions: list[FunctionType] = []
            self.variables: list[Variable] = []
            self.absent: dict[int, tuple[Scope, set[str]]] = {}
            self._hooked = set[int]()  # modules whose hooks were found
            self._kinds = dict[int, type]()  # classes of objects
            self._visited: dict[int, Any] = {}  # held, so that no other object gets the id of a visited one
            self._queue = deque([function])
            while self._queue and len(self._visited) < _MAX_OBJECTS:
                self._visit(self._queue.popleft())
        found = [value for value in self._visited.values() if is_module(value)]
        self.modules = _outermost(found)
        self._visit_contents()
        self.objects = [value for value in self._visited.values() if not issubclass(type(value), _NO_OBJECTS)]
        read = [edge for edge in self._edges if self._is_checked(edge)]
        leading = self._leading_to([*map(id, found), *(edge.owner for edge in read)])
        is_read = set(map(id, read))
        self.edges = [edge for edge in self._edges if id(edge) in is_read or any(id(value) in leading for value in edge.values)]

    def _is_checked(self, edge: Edge) -> bool:
        """Return whether the values of a reference are compared before a replay. Modules have checks of their own."""
        owner = self._visited.get(edge.owner, self._kinds.get(edge.owner))
        if _has_own_check(owner):
            return False
        if _is_class(owner) and owner_of_class(owner) != "user":  # a class of a library, whose methods do not change
            return any(map(self._is_read, edge.values))
        return not all(is_module(value) or is_of_library(value) for value in edge.values)

    def _is_read(self, value: Any) -> bool:
        """Return whether to compare a value found in a library's class: only tensors, numbers, text and functions to search."""
        kind = type(value)
        return is_tensor(value) or kind in PLAIN or (kind is FunctionType and self._is_followed(value))

    def _leading_to(self, addresses: list[int]) -> set[int]:
        """Return `addresses`, which are ids of objects, and the ids of all objects through which the search reached these."""
        owners = dict[int, list[int]]()
        for edge in self._edges:
            for value in edge.values:
                owners.setdefault(id(value), []).append(edge.owner)
        leading, pending = set[int](), addresses
        while pending:
            if (address := pending.pop()) not in leading:
                leading.add(address)
                pending += owners.get(address, ())
        return leading

    def _follow(self, owner: Any, name: str, read: Callable[[], Values], scope: Scope | None = None) -> None:
        """Search the values that `read` returns, and add an Edge with `read`, so that later calls can read and compare them."""
        values = read()
        self._edges.append(Edge(id(owner), name, values, read, scope, type(owner).__name__))
        self._queue += values

    def _follow_constant(self, owner: Any, value: Any) -> None:
        self._edges.append(Edge(id(owner), "", (value,)))
        self._queue.append(value)

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if id(value) in self._visited or kind in _LEAVES:
            return
        self._visited[id(value)] = value
        if module_of(kind).partition(".")[0] in _OPAQUE:
            return
        for part in readers.parts_behind(value):
            self._follow_constant(value, part)
        if kind in OF_C:
            return
        self.names |= readers.names_read_by(value)
        if (read := reader_of_state(value)) is not None:
            self._follow(value, HIDDEN, read)
        elif is_tensor(value):
            self._visit_names(value, attributes_of(value) or {}, self.names)
        elif issubclass(kind, FUNCTIONS):
            if issubclass(kind, partial):
                self._follow(value, "", partial(bound_objects, value))
            if value is self._function or any(map(self._is_followed, plain_functions(value))):
                self._visit_function(value)
        elif issubclass(kind, _CONTAINERS):
            if len(value) <= _LONG:
                self._follow(value, "", readers.content_reader(value))
            elif len(value) <= _LONGEST and not issubclass(kind, (set, frozenset)):  # data, probably
                self._follow(value, "", readers.used_reader(value))
            if kind not in _CONTAINERS:
                self._visit_object(value)
        elif issubclass(kind, ref):
            self._follow(value, "", lambda: (value(),))
        elif issubclass(kind, threading.local):
            for name in _common(readers.values_of_thread(value), self.names):
                self._follow(value, name, partial(readers.value_of_thread, value, name))
        elif issubclass(kind, ModuleType):
            if value is os and "getenv" in self.names:
                self._queue.append(os.environ)
            if value.__name__.partition(".")[0] != "torch":
                self._visit_names(value, vars(value), self.names)
        elif issubclass(kind, type):
            self._visit_class(value, self.names | _MAKING)
        else:
            self._visit_object(value)

    def _visit_function(self, function: Any) -> None:
        for level, _ in unwrap(function).layers:
            for value in () if issubclass(type(level), partial) else bound_objects(level):
                self._follow_constant(function, value)
        for inner in plain_functions(function):
            if owner_of_file(inner.__code__.co_filename).kind == "torch":
                continue  # a function of torch that was passed, or is a decorator: its names would match everywhere
            names = names_in(inner.__code__)
            self.names |= names.attributes | names.texts | names.set_attributes
            self.assigned |= names.set_attributes
            self.functions.append(inner)
            for module in modules_named_in(inner):
                self._visit_names(function, sys.modules, {module.__name__})
            self.variables += [Variable(name, inner.__globals__, name) for name in sorted(names.assigned)]
            self._visit_names(function, inner.__dict__, self.names | {"registry"})  # of `functools.singledispatch`
            self.variables += [Variable(name, inner.__dict__, name) for name in _common(inner.__dict__, self.assigned)]
            for cell in cells_of(inner):
                self.variables.append(Variable("a closure variable", cell, ""))
                self._follow(function, "", partial(readers.cell_content, cell))
            for defaults in ("__defaults__", "__kwdefaults__"):
                if getattr(inner, defaults):
                    self._follow(function, defaults, partial(readers.attribute, inner, defaults))
            self._visit_names(function, inner.__globals__, names.variables | names.texts | names.assigned)

    def _visit_names(self, owner: Any, scope: Scope, names: Set[str]) -> None:
        found = _common(scope, names)
        for name in found:
            if (id(scope), name) not in self.skipped:
                self._follow(owner, name, partial(readers.item, scope, name), scope)
        if not (is_tensor(owner) or _has_own_check(owner)):
            self.absent.setdefault(id(scope), (scope, set()))[1].update(names - set(found))

    def _visit_object(self, value: Any) -> None:
        self._visit_class_of(value)
        names: Set[str] = self.names | self._names_in_class(type(value))
        attributes = attributes_of(value)
        if issubclass(type(value), torch.optim.Optimizer):
            self.optimizers.append(value)
            self._libraries |= _libraries_of(type(value))
            if self._is_step:  # groups and state are compared separately
                names -= _OF_OPTIMIZERS
                self._queue += objects_in([value])
        if attributes is not None and module_of(type(value)).startswith(_STATEFUL):
            names = (names if not self._is_step else frozenset()) | (attributes.keys() - _OF_OPTIMIZERS - {"step"})
        if issubclass(type(value), Enum):
            names |= {"_value_"}
        names |= _KEPT_BY_LIBRARIES.get(module_of(type(value)), frozenset())
        if attributes is not None and module_of(type(value)).startswith("dynx."):  # programs do not assign these
            for name in _common(attributes, names):
                self._follow_constant(value, attributes[name])
        elif attributes is not None:
            self._visit_names(value, attributes, names)
        if is_module(value) and id(value) not in self._hooked:
            for module in value.modules():
                self._hooked.add(id(module))
                self._visit_class_of(module)
                self._queue += hooks_of(module) if module is not self._method_of else ()
        for slot in self._slots_of(type(value)):
            if slot.__name__ in names:
                self._follow(value, slot.__name__, partial(readers.slot, slot, value))

    def _names_in_class(self, kind: type) -> frozenset[str]:
        """Return the names of attributes that methods of a class use. Reads only methods named in the code searched so far."""
        if kind not in self._names_of:
            is_searched = module_of(kind).partition(".")[0] not in _NOT_SEARCHED
            self._names_of[kind] = names_of_class(kind, self.names | self._names_of_objects) if is_searched else frozenset()
            self._names_of_objects |= self._names_of[kind]
        return self._names_of[kind]

    def _slots_of(self, kind: type) -> list[MemberDescriptorType]:
        if id(kind) not in self._slots:
            attributes = (value for base in kind.__mro__ for value in vars(base).values())
            self._slots[id(kind)] = [value for value in attributes if type(value) is MemberDescriptorType]
        return self._slots[id(kind)]

    def _visit_class_of(self, value: Any) -> None:
        """Search the class of an object, without methods such as `__init__` that create objects."""
        kind = type(value)
        if not is_module(value):  # the classes of modules are in the key
            self._edges.append(Edge(id(value), "", (kind,)))
        if id(kind) not in self._visited and id(kind) not in self._kinds:
            self._kinds[id(kind)] = kind
            self._visit_class(kind, self.names - _MAKING)

    def _visit_class(self, kind: type, names_in_code: Set[str]) -> None:
        """Search attributes of a class and its bases if named in `names_in_code`; also special methods of users' classes."""
        if type(kind) is not type:
            self._follow_constant(kind, type(kind))
        if issubclass(kind, Enum):
            self._queue += [member for name, member in kind.__members__.items() if name in self.names]
        for base in filter(is_mutable, kind.__mro__):
            attributes, names = vars(base), names_in_code
            if owner_of_class(base) == "user":
                self.variables += [Variable(name, base, name) for name in _common(attributes, self.assigned)]
                if not _has_own_check(base):
                    self.absent.setdefault(id(base), (attributes, set()))[1].update(names - attributes.keys())
                called = _OF_FUNCTIONS if issubclass(kind, Function) else frozenset[str]()
                names = names | (_methods_of_python(attributes) - (_MAKING - names)) | called
            for name in _common(attributes, names):
                if type(attributes[name]) is not MemberDescriptorType:
                    self._follow(kind, name, partial(readers.item, attributes, name), attributes)
                    self._queue += functions_behind(attributes[name])

    def _visit_contents(self) -> None:
        """Search the containers and objects in attributes of modules, if the `forward` methods of their classes read them."""
        modules = [module for outer in self.modules for module in outer.modules()]
        named = {kind: names_of_class(kind) for kind in set(map(type, modules)) if not module_of(kind).startswith("torch.")}
        self.names = self.names.union(*named.values())
        visited, edges, self._visited, self._edges = self._visited, self._edges, {}, []  # again, with more names
        self._names_of = {}
        for module in modules:
            attributes = vars(module)
            for name in _common(attributes, named.get(type(module), frozenset()) - _OF_MODULES):
                if (id(attributes), name) not in self.skipped:
                    self._queue.append(attributes[name])
        while self._queue and len(self._visited) < _MAX_OBJECTS:
            value = self._queue.popleft()
            if not issubclass(type(value), (nn.Module, type, ModuleType, *FUNCTIONS)):
                self._visit(value)
        known = {(edge.owner, edge.name) for edge in edges}
        self._edges = [*edges, *(edge for edge in self._edges if (edge.owner, edge.name) not in known)]
        self._visited |= visited

    def _is_followed(self, function: FunctionType) -> bool:
        """Return whether to search a function: if it is of the user, the first function's file, or an optimizer's library."""
        owner, library = owner_of_file(function.__code__.co_filename)
        is_same_file = owner not in ("torch", "dynx") and any(function.__globals__ is scope for scope in self._scopes)
        return is_same_file or owner == "user" or library in self._libraries


_LONG, _LONGEST = 100, 10_000  # elements up to which a container is followed: completely, only its modules and tensors
_MAX_OBJECTS = 2_000
_NOT_SEARCHED = {"torch", "dynx", *sys.stdlib_module_names}  # packages whose classes are not searched for names
_OPAQUE = {"triton"}  # packages whose objects change without effect on results: an autotuner keeps the best configurations
_STATEFUL = "torch.optim.", "torch.amp."  # modules of torch with objects whose numbers change
_OF_OPTIMIZERS = frozenset(vars(torch.optim.Optimizer([torch.zeros(1)], {}))) | {  # compared separately, or set by torch
    *("_opt_called", "grad_scale", "found_inf", "_step_supports_amp_scaling", "_need_device_dtype_check_for_fused")
}
_IMPLICIT_NAMES = ("__call__", "__getitem__", "__getattr__", "__iter__", "__init__", "forward")  # called without being named
_OF_FUNCTIONS = frozenset(("backward", "setup_context", "jvp", "vjp", "vmap"))  # that autograd calls
_KEPT_BY_LIBRARIES = {  # attributes that hold what an object contains, or how far it was read, by module of the class
    "collections": frozenset(("data", "maps")),
    "weakref": frozenset(("data",)),
    "_weakrefset": frozenset(("data",)),
    "queue": frozenset(("queue",)),
    "threading": frozenset(("_flag", "_value")),
    "multiprocessing.sharedctypes": frozenset(("_obj",)),
    "contextlib": frozenset(("enter_result",)),
    "torch.utils.data.dataloader": frozenset(("_num_yielded",)),
}
_MAKING = frozenset(("__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__"))  # create objects, classes
_LEAVES = frozenset((type(None), bool, int, float, str, bytes, torch.dtype, torch.device))
_NO_OBJECTS = nn.Module, type, ModuleType, ref, *FUNCTIONS, *OF_C
_CONTAINERS = list, tuple, deque, dict, set, frozenset
_OF_MODULES = frozenset(vars(nn.Module()))


def _libraries_of(kind: type) -> set[str]:
    """Return the libraries that define a class or its bases."""
    functions = (value for base in kind.__mro__ for value in vars(base).values() if type(value) is FunctionType)
    owners = (owner_of_file(function.__code__.co_filename) for function in functions)
    return {library for owner, library in owners if owner == "library" and library is not None}


def functions_behind(value: Any) -> list[Any]:
    """Return the functions in a method, class method, static method, property or cached property; [] for other attributes."""
    kind = type(value)
    if issubclass(kind, property):
        return [inner for inner in (value.fget, value.fset, value.fdel) if inner is not None]
    if issubclass(kind, (classmethod, staticmethod)):
        return [value.__func__]
    if issubclass(kind, cached_property):
        return [value.func]
    return [value] if kind is FunctionType else []


def _methods_of_python(attributes: Scope) -> Set[str]:
    """Return the names of special methods, such as `__enter__`, which Python calls although no code names them."""
    return {name for name, value in attributes.items() if name.startswith("__") and functions_behind(value)}


def _outermost(modules: list[nn.Module]) -> list[nn.Module]:
    """Return the modules that are not submodules of other modules in the list."""
    if len(modules) < 2:
        return modules
    inner = {id(module) for outer in modules for module in outer.modules() if module is not outer}
    return [module for module in modules if id(module) not in inner]


def _common(scope: Scope, names: Set[str]) -> list[str]:
    if len(scope) < len(names):
        return sorted(name for name in tuple(scope) if name in names)
    return sorted(name for name in names if name in scope)


def _has_own_check(owner: Any) -> bool:
    """Return whether the checks of this search skip `owner`: an nn.Module, an nn.Module class or a library's Python module."""
    return is_of_library(owner) or is_module(owner) or (_is_class(owner) and issubclass(owner, nn.Module))


def _is_class(value: Any) -> TypeGuard[type]:
    return issubclass(type(value), type)  # `isinstance` asks a weak proxy for the class of its object


def is_module(value: Any) -> bool:
    return issubclass(type(value), nn.Module)


def is_tensor(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)
