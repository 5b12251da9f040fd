"""Read guarded values without running any of the user's code.

torch's guards may call properties and `__eq__`. These functions only follow instance dictionaries and built-in containers, and
return None (unknown) if that does not lead to the value. A source is written as in torch's messages: `self.layers[0].scale`.
"""

from __future__ import annotations

import ast
import math
from collections import namedtuple
from collections.abc import Iterable, Mapping
from enum import EnumMeta
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple

Holder = Literal["argument", "global", "module", "optimizer", "object"]

_UNKNOWN = object()
_FIELD = type(namedtuple("_Fields", "field").field)  # type: ignore[attr-defined]
_SIZED: tuple[Any, ...] = (list, tuple, dict, set, frozenset, str)
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")  # torch.nn.Module.__getattr__ looks here
_IN_MESSAGE = (type(None), bool, int, float, str, bytes, dict, list, tuple, set)  # torch prints what it expected of these
_PLAIN_OF_TORCH = ("dtype", "device", "layout", "memory_format")  # types in C, whose repr runs no code of the user
_MAX_LENGTH = 80  # characters of a value
_MAX_KEYS = 8  # of a dict
_MAX_KEY_TEXTS = 64  # of a dict whose keys are compared


def describe(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return the value of `source` as short text; None if it cannot be read safely."""
    value = resolve(source, locals, globals)
    return None if value is _UNKNOWN else text_of(value)


def length(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return the length of the container at `source`; an overridden `__len__` is not called."""
    value = resolve(source, locals, globals)
    for base in _SIZED:
        if issubclass(type(value), base):
            return str(base.__len__(value))
    return None


def keys(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return the keys of the dict at `source` as text."""
    value = resolve(source, locals, globals)
    if not issubclass(type(value), dict):
        return None
    names = [text_of(key) for key in dict.keys(value)]
    return ", ".join(names[:_MAX_KEYS]) + (f", … {len(names)} in all" if len(names) > _MAX_KEYS else "")


def key_texts(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return each key of the dict at `source` as text; None if it is no dict, or has more than 64 keys."""
    return _key_texts(resolve(source, locals, globals))


def _key_texts(value: Any) -> tuple[str, ...] | None:
    if not issubclass(type(value), dict) or len(dict.keys(value)) > _MAX_KEY_TEXTS:
        return None
    return tuple(text_of(key) for key in dict.keys(value))


def holder(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Holder:
    """Return where the value of `source` is stored: an argument, a global, or an attribute of a module, optimizer or object."""
    try:
        node = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return "object"
    if isinstance(node, ast.Name):
        return "argument"
    inner: ast.expr = node
    direct = True
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        inner = inner.value
        owner = globals if isinstance(inner, ast.Name) and inner.id == "G" else _follow(inner, locals, globals)
        if _is_a(owner, "torch.optim", "Optimizer"):
            return "optimizer"
        if direct and (owner is globals or issubclass(type(owner), ModuleType)):
            return "global"
        if direct and is_module(owner):
            return "module"
        direct = False
    return "object"


class Described(NamedTuple):
    """Text about values at the time of a compilation, which a later recompile is compared with; both by source."""

    objects: dict[str, str]  # values that torch may guard by identity, of which it keeps only the address; a tensor by its type
    keys: dict[str, tuple[str, ...]]  # of dicts


def described(sources: Iterable[str], locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Described:
    """Describe the values of guarded sources, as far as torch does not keep them."""
    result = Described({}, {})
    for source in sources:
        value = resolve(source, locals, globals)
        if value is not _UNKNOWN and type(value) not in _IN_MESSAGE:
            result.objects[source] = str(type(value)) if _is_a(value, "torch", "Tensor") else text_of(value)
        if (keys := _key_texts(value)) is not None:
            result.keys[source] = keys
    return result


def is_absent(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> bool:
    """Return whether `source` leads to no value, or to a value that cannot be read safely."""
    return resolve(source, locals, globals) is _UNKNOWN


def is_module(value: Any) -> bool:
    """Return whether a value is a torch.nn.Module, judged by the names of its base classes."""
    return _is_a(value, "torch.nn", "Module")


def _is_a(value: Any, package: str, name: str) -> bool:
    return any(base.__name__ == name and base.__module__.startswith(package) for base in type(value).__mro__)


def text_of(value: Any) -> str:
    """Render a value as short text; the `__repr__` of the user's own classes is not called."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        text = repr(value)
        return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"
    if issubclass(type(type(value)), EnumMeta):
        return f"{type(value).__qualname__}.{object.__getattribute__(value, '_name_')}"
    if type(value).__module__ == "torch" and type(value).__name__ in _PLAIN_OF_TORCH:
        return repr(value)
    if type(value) in (type, FunctionType, BuiltinFunctionType, MethodType):
        return str(value.__qualname__)
    return f"a {type(value).__qualname__}"


def resolve(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Any:
    """Return the value of `source`, or the sentinel `_UNKNOWN` if it cannot be read safely."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return _UNKNOWN
    return _follow(tree, locals, globals)


def _follow(node: ast.expr, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return locals.get(node.id, _UNKNOWN)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
        scope = {"G": globals, "L": locals}.get(node.value.id, {})  # torch's names of both; a local may have the same name
        key = node.slice.value
        if isinstance(key, str) and key in scope:
            return scope[key]
    if isinstance(node, ast.Attribute):
        return _attribute(_follow(node.value, locals, globals), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _item(_follow(node.value, locals, globals), node.slice.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
        return _only_element(_follow(node.func.value, locals, globals))
    return _UNKNOWN


def _only_element(tensor: Any) -> Any:
    """Return `tensor.item()`; `_UNKNOWN` for several elements or a subclass, which might run the user's code."""
    sizes = shape_of(tensor)
    return tensor.item() if sizes is not None and math.prod(sizes) == 1 else _UNKNOWN


def _attribute(owner: Any, name: str) -> Any:
    if owner is _UNKNOWN:
        return _UNKNOWN
    try:
        own: dict[str, Any] = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        own = {}
    if name == "__dict__":
        return own
    if name in own:
        return own[name]
    for name_of_dict in _MODULE_DICTS:
        members = own.get(name_of_dict)
        if isinstance(members, dict) and name in members:
            return members[name]
    if (type(owner) is FunctionType and name == "__closure__") or (type(owner) is CellType and name == "cell_contents"):
        try:
            return getattr(owner, name)
        except ValueError:  # an empty cell
            return _UNKNOWN
    if type(owner) is partial and name in ("func", "args", "keywords"):
        return getattr(owner, name)
    for base in type(owner).__mro__:
        attribute = vars(base).get(name, _UNKNOWN)
        if type(attribute) is _FIELD and issubclass(type(owner), tuple):  # a field of a namedtuple
            return attribute.__get__(owner)
        if attribute is not _UNKNOWN:
            return _UNKNOWN if hasattr(type(attribute), "__get__") else attribute  # a descriptor may run the user's code
    return _UNKNOWN


def _item(owner: Any, key: Any) -> Any:
    """Return `owner[key]`, read with the method of the built-in dict, list or tuple, even if a subclass overrides it.

    `isinstance` is avoided because it may run the user's `__class__`.
    """
    kind = type(owner)
    try:
        if issubclass(kind, dict):
            return dict.__getitem__(owner, key) if type(key) in (str, int) else _UNKNOWN
        for base in (list, tuple):
            if issubclass(kind, base) and type(key) is int:
                return base.__getitem__(owner, key)
    except (KeyError, IndexError):
        pass
    return _UNKNOWN


def type_name(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return the type of the value of `source` as text, `<class 'int'>`; None if the value cannot be read safely."""
    value = resolve(source, locals, globals)
    return None if value is _UNKNOWN else str(type(value))


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the sizes of a plain tensor; None for a subclass, which might run the user's code."""
    if type(value).__module__ not in ("torch", "torch.nn.parameter"):
        return None
    try:
        return tuple(value.shape)
    except AttributeError:
        return None
