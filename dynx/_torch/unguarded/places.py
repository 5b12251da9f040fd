"""Where Python finds an attribute, and what it finds there, without running descriptors or `__getattr__`."""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from dynx._bytecode.safe_read import is_plain, members_of

_MODULE_DICTS = ("_parameters", "_buffers", "_modules")


class Place(NamedTuple):
    """Where an attribute is stored: `holder` is "instance", "absent", a name of a dict of `nn.Module`, or a class."""

    holder: object
    value: Any


def find(owner: Any, name: str) -> Place:
    """Return the place of the attribute `name` of `owner`."""
    cls = type(owner)
    if issubclass(cls, type):
        metaclass = find_in_classes(cls, name)
        found = find_in_classes(owner, name)
        if found is None or (metaclass is not None and hasattr(type(metaclass.value), "__set__")):
            return _read(metaclass, owner) if metaclass is not None else Place("absent", None)
        return found
    own = members_of(owner)
    in_class = find_in_classes(cls, name)
    if in_class is not None and hasattr(type(in_class.value), "__set__"):
        return _read(in_class, owner)
    if name in own:
        return Place("instance", own[name])
    if in_class is not None:
        return in_class
    for dict_name in _MODULE_DICTS:
        members = own.get(dict_name)
        if isinstance(members, dict) and name in members:
            return Place(dict_name, members[name])
    return Place("absent", None)


def _read(place: Place, owner: Any) -> Place:
    """Return the place with the value that a descriptor of Python reads: a slot, or `__name__` of a function or class."""
    is_safe = type(place.value) is MemberDescriptorType or type(owner) is FunctionType or place.holder is type
    if not is_safe or type(place.value) not in (MemberDescriptorType, GetSetDescriptorType):
        return place
    try:
        value = place.value.__get__(owner)
    except AttributeError:  # an empty slot
        return Place("absent", None)
    return Place("instance" if type(place.value) is MemberDescriptorType else place.holder, value)


def find_in_classes(cls: type, name: str) -> Place | None:
    """Return the place of `name` among a class and its bases; None if none of them has it."""
    for base in type.__dict__["__mro__"].__get__(cls):
        members = type.__dict__["__dict__"].__get__(base)
        if name in members:
            return Place(base, members[name])
    return None


def token(value: Any) -> object:
    """Return what stands for a value in a comparison: equal for functions with the same code and defaults; else by identity."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if type(value) is property:
        value = value.fget
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return (value.__code__, tuple(map(token, defaults)))
    if is_plain(value):
        return (type(value), repr(value))
    return id(value)


def is_code(value: Any) -> bool:
    """Return whether a value is a function or a descriptor of one, whose code Dynamo traces into its caller."""
    return type(value) in (FunctionType, MethodType, staticmethod, classmethod, property)


def is_fixed(value: Any) -> bool:
    """Return whether Dynamo puts a value into compiled code: a constant, a function or a class."""
    return is_plain(value) or is_code(value) or isinstance(value, (type, ModuleType))
