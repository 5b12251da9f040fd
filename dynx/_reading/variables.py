"""The variables that a function may read or change and that outlive its call: globals, attributes, closure cells, defaults.

Variables are found by the names in the code. Computed names, as in `getattr(module, name)`, are not found. The path of a
variable says where it is: `globals.count`, `Counter.total`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any

from dynx._bytecode.cells import is_filled
from dynx._reading.names import names_in
from dynx._reading.owner import owner_of_class

ABSENT = object()  # the value of a variable that is not set
_OF_CLASSES = (
    *("__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__slots__", "__match_args__", "__qualname__", "__firstlineno__", "__static_attributes__", "__orig_bases__", "__hash__"),
    *("__parameters__", "__abstractmethods__", "__dataclass_fields__", "__dataclass_params__", "__type_params__"),
    *("__classcell__", "__objclass__", "__module__"),
)
_OF_MODULES = (
    *("__builtins__", "__name__", "__file__", "__path__", "__loader__", "__spec__", "__package__", "__cached__"),
    "__warningregistry__",
)
_SET_BY_PYTHON = frozenset((*_OF_CLASSES, *_OF_MODULES))
_OF_COMPILATION = (
    *("_torchdynamo", "_dynamo", "__dynamo", "__compiled", "__resume", "__import_", "__builtins_dict"),
    *("___", "_abc_"),
)
_NEW_NAMES_OF_OTHERS = ("__", *_OF_COMPILATION)  # names of Python and Dynamo, such as `___module_collections_1`
_WITH_ID = re.compile(r"(_stream_\w+|_event)?_\d{6,}_c\d+")  # of an object with this id: of torch where code reads `type(x)`
_METHODS = (FunctionType, staticmethod, classmethod, property)
_OF_FUNCTIONS = ("__defaults__", "__kwdefaults__")


@dataclass(frozen=True, eq=False)
class Variable:
    """A global, an attribute, a closure cell, or the defaults of a function."""

    path: str  # "globals.count", "Counter.total", "settings.limit", "note.closure.seen"
    owner: Any  # a dict, a class, a cell or a function
    name: str

    @property
    def key(self) -> tuple[int, str]:
        return id(self.owner), "" if type(self.owner) is CellType else self.name

    def get(self) -> Any:
        """Return the value of the variable; `ABSENT` if it is not set."""
        owner = self.owner
        if type(owner) is CellType:
            return owner.cell_contents if is_filled(owner) else ABSENT
        if type(owner) is FunctionType:
            return getattr(owner, self.name)
        return (owner.__dict__ if isinstance(owner, type) else owner).get(self.name, ABSENT)

    def set(self, value: Any) -> None:
        """Set the variable to a value, or remove it if the value is `ABSENT`."""
        if value is self.get():
            return
        owner, is_absent = self.owner, value is ABSENT
        if type(owner) is CellType:
            if is_absent:
                del owner.cell_contents
            else:
                owner.cell_contents = value
        elif type(owner) is FunctionType:
            setattr(owner, self.name, value)
        elif isinstance(owner, type):
            type.__delattr__(owner, self.name) if is_absent else type.__setattr__(owner, self.name, value)
        elif is_absent:
            owner.pop(self.name, None)
        else:
            owner[self.name] = value


@dataclass(frozen=True, eq=False)
class Namespace:
    """A dict or class in which code may create variables: globals, a class, a module, or the attributes of an object."""

    path: str
    owner: dict[str, Any] | type

    def names(self) -> set[str]:
        """Return the names in the namespace, without names that Python or torch sets."""
        names = self.owner.__dict__ if isinstance(self.owner, type) else self.owner
        own = {name for name in tuple(names) if isinstance(name, str) and not name.startswith(_NEW_NAMES_OF_OTHERS)}
        return {name for name in own if _WITH_ID.fullmatch(name) is None}


def is_name_of_user(name: str) -> bool:
    """Return whether a name may be the user's: neither Python (`__module__`) nor torch.compile (`__compiled_fn_1`) sets it."""
    return name not in _SET_BY_PYTHON and not name.startswith(_OF_COMPILATION) and _WITH_ID.fullmatch(name) is None


def cells_of_function(fn: FunctionType, path: str) -> Iterator[Variable | Namespace]:
    """Yield the closure cells, defaults and attributes of a function, whose own path is `path`."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        yield Variable(f"{path}.closure.{name}" if path else f"closure.{name}", cell, name)
    for name in _OF_FUNCTIONS:
        if getattr(fn, name):
            yield Variable(f"{path or 'function'}.{name}", fn, name)
    attributes = Namespace(path or fn.__qualname__, fn.__dict__)
    yield attributes
    for name in sorted(attributes.names()):
        yield Variable(f"{attributes.path}.{name}", fn.__dict__, name)


def globals_of_function(fn: FunctionType, path: str) -> Iterator[Variable | Namespace]:
    """Yield the globals that a function reads, assigns, or names in a string constant; their paths begin with `path`."""
    names, scope = names_in(fn.__code__), fn.__globals__
    yield Namespace(path, scope)
    for name in sorted((names.variables | names.texts) & scope.keys() | names.assigned):
        yield Variable(f"{path}.{name}", scope, name)


def variables_of_module(module: ModuleType, names: Collection[str]) -> Iterator[Variable | Namespace]:
    """Yield the attributes of a module that have one of these names, and the module's function `__getattr__` if it has one."""
    attributes, path = vars(module), str(vars(module).get("__name__", "module"))
    yield Namespace(path, attributes)
    for name in sorted({*names, "__getattr__"} & attributes.keys()):
        if is_name_of_user(name):
            yield Variable(f"{path}.{name}", attributes, name)


def variables_of_class(cls: type) -> Iterator[Variable | Namespace]:
    """Yield the attributes of a class, its bases and its metaclass; of classes that a library defines, only the methods."""
    for owner in dict.fromkeys([*cls.__mro__, *type(cls).mro(type(cls))]):
        kind = owner_of_class(owner)
        if kind not in ("user", "library"):
            continue
        path = owner.__qualname__.rpartition("<locals>.")[2]
        if kind == "user":
            yield Namespace(path, owner)
        for name, value in tuple(vars(owner).items()):
            # not the data of library classes: library functions, which are not followed, may compare it by identity
            if is_name_of_user(name) and (kind == "user" or isinstance(value, _METHODS)):
                yield Variable(f"{path}.{name}", owner, name)
    if issubclass(cls, enum.Enum) and owner_of_class(cls) == "user":
        for member in dict(cls.__members__).values():
            for name in tuple(vars(member)):
                yield Variable(f"{cls.__qualname__}.{member._name_}.{name}", vars(member), name)
