"""The probes: how each kind of read is read again."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from dynx._bytecode.safe_read import UNKNOWN, members_of, text_of
from dynx._torch.unguarded.places import find, find_in_classes, is_fixed, token
from dynx._torch.unguarded.read import Probe, Referent, Scope

REGISTERED = "registered in the module"  # a parameter, buffer or submodule
_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}


@dataclass(frozen=True, slots=True, eq=False)
class Attribute(Probe):
    """An attribute: where Python finds it, and its value where it is found on a class or a module of Python."""

    owner: Referent
    name: str

    def key(self, scope: Scope | None) -> object:
        owner = self.owner.get(scope)
        if owner is UNKNOWN:
            return UNKNOWN
        holder, value = find(owner, self.name)
        if isinstance(holder, str) and not (holder == "instance" and isinstance(owner, ModuleType)):
            return holder
        return (holder if isinstance(holder, str) else id(holder), token(value) if is_fixed(value) else None)

    def text(self, scope: Scope | None) -> str:
        owner = self.owner.get(scope)
        if owner is UNKNOWN:
            return "unknown"
        holder, value = find(owner, self.name)
        if holder == "absent":
            return "absent"
        if isinstance(holder, str) and holder.startswith("_"):
            return REGISTERED
        return text_of(value.__func__ if isinstance(value, (staticmethod, classmethod)) else value)


@dataclass(frozen=True, slots=True, eq=False)
class Function(Probe):
    """A function whose code Dynamo traced into its caller: its code and defaults."""

    function: Referent

    @property
    def file(self) -> str | None:
        function = self.function.get(None)
        return function.__code__.co_filename if type(function) is FunctionType else None

    def key(self, scope: Scope | None) -> object:
        function = self.function.get(scope)
        return token(function) if type(function) is FunctionType else UNKNOWN

    def text(self, scope: Scope | None) -> str:
        function = self.function.get(scope)
        if type(function) is not FunctionType:
            return "unknown"
        code = function.__code__
        defaults = ", ".join(map(text_of, (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())))
        return f"code of line {code.co_firstlineno}" + (f", defaults {defaults}" if defaults else "")


@dataclass(frozen=True, slots=True, eq=False)
class Hooks(Probe):
    """Whether a module has hooks of each kind; of all modules if `module` is None."""

    module: Referent | None

    def _counts(self, scope: Scope | None) -> dict[str, int] | None:
        if self.module is None:
            members: Mapping[str, Any] = vars(sys.modules["torch.nn.modules.module"])
            return {text: len(members.get(f"_global{name}", ())) for name, text in _HOOKS.items()}
        module = self.module.get(scope)
        if module is UNKNOWN:
            return None
        return {text: len(members_of(module).get(name) or ()) for name, text in _HOOKS.items()}

    def key(self, scope: Scope | None) -> object:
        counts = self._counts(scope)
        return UNKNOWN if counts is None else tuple(map(bool, counts.values()))

    def text(self, scope: Scope | None) -> str:
        counts = self._counts(scope) or {}
        return ", ".join(f"{count} {text}{'s' * (count > 1)}" for text, count in counts.items() if count) or "no hooks"


@dataclass(frozen=True, slots=True, eq=False)
class Identity(Probe):
    """Whether two expressions are one object."""

    left: Referent
    right: Referent

    def key(self, scope: Scope | None) -> object:
        left, right = self.left.get(scope), self.right.get(scope)
        return UNKNOWN if left is UNKNOWN or right is UNKNOWN else left is right

    def text(self, scope: Scope | None) -> str:
        return str(self.key(scope))


@dataclass(frozen=True, slots=True, eq=False)
class Key(Probe):
    """The object that was looked up in a dict, list or set, compared by identity."""

    owner: Referent

    def key(self, scope: Scope | None) -> object:
        value = self.owner.get(scope)
        return UNKNOWN if value is UNKNOWN else id(value)

    def text(self, scope: Scope | None) -> str:
        value = self.owner.get(scope)
        return "unknown" if value is UNKNOWN else text_of(value)


@dataclass(frozen=True, slots=True, eq=False)
class AbsentKey(Probe):
    """Whether a dict has a key that it did not have."""

    owner: Referent
    wanted: Any  # a constant

    def key(self, scope: Scope | None) -> object:
        value = self.owner.get(scope)
        return dict.__contains__(value, self.wanted) if issubclass(type(value), dict) else UNKNOWN

    def text(self, scope: Scope | None) -> str:
        key = self.key(scope)
        return "unknown" if key is UNKNOWN else "present" if key else "absent"


@dataclass(frozen=True, slots=True, eq=False)
class Order(Probe):
    """The order of the keys of an OrderedDict."""

    owner: Referent

    def key(self, scope: Scope | None) -> object:
        value = self.owner.get(scope)
        return tuple(map(token, OrderedDict.__iter__(value))) if issubclass(type(value), OrderedDict) else UNKNOWN

    def text(self, scope: Scope | None) -> str:
        value = self.owner.get(scope)
        return text_of(list(OrderedDict.__iter__(value))) if issubclass(type(value), OrderedDict) else "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class Import(Probe):
    """The module that an import statement in traced code finds."""

    name: str

    def key(self, scope: Scope | None) -> object:
        return id(sys.modules.get(self.name))

    def text(self, scope: Scope | None) -> str:
        module = sys.modules.get(self.name)
        return "absent" if module is None else f"{text_of(module)} at {id(module):#x}"


@dataclass(frozen=True, slots=True, eq=False)
class Builtin(Probe):
    """A builtin: its value, and whether a global of the module hides it."""

    module: str
    name: str

    def _value(self) -> Any:
        import builtins

        members = vars(sys.modules[self.module]) if self.module in sys.modules else {}
        return members.get(self.name, vars(builtins).get(self.name, UNKNOWN))

    def key(self, scope: Scope | None) -> object:
        value = self._value()
        return UNKNOWN if value is UNKNOWN else token(value)

    def text(self, scope: Scope | None) -> str:
        return text_of(self._value())


@dataclass(frozen=True, slots=True, eq=False)
class Value(Probe):
    """The value of a guard that torch drops: a constant, the length of a list, the keys of `__annotations__`, a type."""

    owner: Referent
    is_whole: bool  # whether all keys of the dict count

    def key(self, scope: Scope | None) -> object:
        value = self.owner.get(scope)
        if value is UNKNOWN:
            return UNKNOWN
        if type(value) is dict:  # its items are read on their own, and others may be added
            return tuple(map(token, value)) if self.is_whole else dict
        if isinstance(value, (list, tuple)):
            return (type(value), len(value))
        return token(value) if is_fixed(value) else type(value)

    def text(self, scope: Scope | None) -> str:
        value = self.owner.get(scope)
        if value is UNKNOWN:
            return "unknown"
        return f"{len(value)} items" if isinstance(value, (dict, list)) else text_of(value)


@dataclass(frozen=True, slots=True, eq=False)
class Call(Probe):
    """The result of a function of torch or Python that only reads a setting, and is called again."""

    call: Callable[[], Any]

    def key(self, scope: Scope | None) -> object:
        return self.call()

    def text(self, scope: Scope | None) -> str:
        return repr(self.call())


@dataclass(frozen=True, slots=True, eq=False)
class Length(Probe):
    """The number of attributes of an object."""

    owner: Referent

    def key(self, scope: Scope | None) -> object:
        value = self.owner.get(scope)
        return dict.__len__(value) if type(value) is dict else UNKNOWN

    def text(self, scope: Scope | None) -> str:
        return str(self.key(scope))


@dataclass(frozen=True, slots=True, eq=False)
class Subclass(Probe):
    """Whether a class is a subclass of an abstract class, which other code may register."""

    cls: Referent
    base: Referent

    def key(self, scope: Scope | None) -> object:
        cls, base = self.cls.get(None), self.base.get(None)
        if cls is UNKNOWN or base is UNKNOWN:
            return UNKNOWN
        if getattr(base, "_is_protocol", False):  # an answer that Python keeps may be older than the class
            return all(find_in_classes(cls, name) is not None for name in _members_of_protocol(base))
        return issubclass(cls, base)

    def text(self, scope: Scope | None) -> str:
        return str(self.key(scope))


def _members_of_protocol(cls: type) -> set[str]:
    bases = [base for base in cls.__mro__ if getattr(base, "_is_protocol", False) and base.__module__ not in ("typing", "abc")]
    return {
        name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ())) if not name.startswith("_")
    }


@dataclass(frozen=True, slots=True, eq=False)
class Fields(Probe):
    """The names of the fields of a dataclass."""

    cls: Referent

    def key(self, scope: Scope | None) -> object:
        cls = self.cls.get(None)
        return UNKNOWN if cls is UNKNOWN else tuple(find(cls, "__dataclass_fields__").value)

    def text(self, scope: Scope | None) -> str:
        return ", ".join(map(str, self.key(scope)))  # type: ignore[call-overload]
