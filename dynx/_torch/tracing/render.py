"""Render symbolic variables (`VariableTracker`) as short texts that are the same in every release of torch.

Torch's own `debug_repr` differs between releases and realizes lazy variables, which adds guards; these functions do neither.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from enum import Enum
from functools import cache, partial
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from dynx._torch.tracing.variables import (
    cell_content,
    class_names,
    example_of,
    is_kind,
    is_lazy,
    items_of,
    settled,
    stored,
    untouched_value,
)

_MAX_TEXT = 80  # characters of one string or number
MAX_ITEMS = 10  # of one container
# name of a symbol under `dynx.symbols.install`; torch's own names have at most three digits
_LONG_NAME = re.compile(r"\b([a-z]+)(\d{6,})\b")
_BRACKETS: Mapping[str, tuple[str, str]] = {
    "list": ("[", "]"),
    "tuple": ("(", ")"),
    "set": ("{", "}"),
    "frozenset": ("frozenset({", "})"),
    "torch.Size": ("torch.Size([", "])"),
    "deque": ("deque([", "])"),
}
# attributes shown besides the items, by class, as descriptors of that class: a subclass may override the attribute
_DETAILS: Mapping[Any, Any] = {deque: deque.__dict__["maxlen"], defaultdict: defaultdict.__dict__["default_factory"]}
_CALLABLES: tuple[Any, ...] = (FunctionType, MethodType, BuiltinFunctionType)
# ways to render a variable, with the variable classes for each; subclasses count too
_MANNERS: Mapping[str, set[str]] = {
    "lazy": {"LazyVariableTracker"},
    "cell": {"CellVariable"},
    "constant": {"ConstantVariable"},
    "null": {"NullVariable", "DeletedVariable"},
    "function": {"BaseUserFunctionVariable", "BuiltinVariable", "BaseBuiltinVariable", "SkipFunctionVariable"}
    | {"BaseTorchVariable", "PolyfilledFunctionVariable"},
    "attribute": {"GetAttrVariable", "CallMethodVariable"},  # the latter from 2.15 on
    "module": {"PythonModuleVariable"},
    "class": {"UserDefinedClassVariable"},
    "super": {"SuperVariable"},
}


def show(tx: Any, variable: Any, depth: int = 2) -> str:
    """Return a short text of a symbolic variable, with `depth` levels of nested containers.

    Tensors show dtype, sizes, a device other than the CPU, and requires_grad; symbolic numbers show their expression and hint.
    A lazy variable is not realized, and shows its Python value.
    """
    manner = manner_of(variable)
    if manner == "lazy":
        variable = settled(variable)
        if is_lazy(variable):
            return show_value(untouched_value(variable), depth)
        manner = manner_of(variable)
    plain = PLAIN.get(manner)
    if plain is not None:
        return plain(variable)
    if manner == "cell":
        content = cell_content(tx, variable)
        return "<empty cell>" if content is None else show(tx, content, depth)
    if manner == "attribute":
        return f"{show(tx, variable.obj, 1)}.{attribute_name(variable)}"
    example = example_of(variable)
    if example is not None:
        return show_example(variable, example)
    items = items_of(variable)
    if items is None and not shown_fields(variable):
        return _show_other(variable)
    return show_container(tx, variable, partial(show, tx), depth)


def show_container(tx: Any, variable: Any, show_member: Callable[[Any, int], str], depth: int) -> str:
    """Return the text of a variable that is a built-in container or a dataclass, using `show_member` for its members.

    `show_member` takes a member and the number of container levels to show.
    """
    items = items_of(variable)
    if items is None:
        return _show_fields_of_variable(tx, variable, show_member, depth)
    text = _show_items(show_member, items, _class_of(variable) or list, depth)
    details = ((name, stored(variable, name)) for name in ("default_factory", "maxlen"))
    return _with_details(_as_range(text), {name: show(tx, detail, 0) for name, detail in details if detail is not None})


def manner_of(variable: Any) -> str:
    """Return the name of the rule that renders a symbolic variable, such as "constant"; "" if its class has no own rule."""
    cls: Any = type(variable)
    return manner_of_class(cls)


@cache
def manner_of_class(cls: Any) -> str:
    """Return the name of the rule that renders variables of a class, such as "constant"; "" if the class has no own rule."""
    names = class_names(cls)
    return next((manner for manner, classes in _MANNERS.items() if not names.isdisjoint(classes)), "")


def show_value(value: Any, depth: int = 2) -> str:
    """Return a short text of a Python value by the rules of `show`, without calling the user's `__repr__`."""
    cls = type(value)
    if value is None or cls in (bool, int, float, complex, str, bytes):
        return _cut(repr(value))
    if is_tensor(value):
        return _show_example(value, cls)
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if issubclass(cls, type):
        return f"class {value.__qualname__}"
    if cls.__module__ == "torch" and cls.__name__ in ("dtype", "device", "layout", "memory_format"):
        return str(value)
    for base in (list, tuple, dict, set, frozenset, deque):
        if issubclass(cls, base):
            items = {key: dict.__getitem__(value, key) for key in dict.keys(value)} if base is dict else base.__iter__(value)
            text = _show_items(show_value, items if base is dict else list(items), cls, depth)
            read = _DETAILS.get(base) if base is deque else _DETAILS.get(cls)
            return text if read is None else _with_details(text, {read.__name__: show_value(read.__get__(value), 0)})
    if cls in (range, slice):
        parts = (value.start, value.stop, value.step)
        return _as_range(f"{cls.__name__}({', '.join(show_value(part, 0) for part in parts)})")
    if issubclass(cls, Enum):
        return f"{cls.__qualname__}.{object.__getattribute__(value, '_name_')}"
    if cls in _CALLABLES:
        return f"function {value.__qualname__}"
    kind: Any = cls
    if shown := _fields_of(kind):
        attributes = _attributes_of(value)
        return _show_fields(cls, {name: attributes[name] for name in shown if name in attributes}, show_value, depth)
    return f"<{cls.__qualname__}>"


def _as_range(text: str) -> str:
    """Return the text of a range without its step if that is 1, as Python shows it; any other text unchanged."""
    return f"{text.removesuffix(', 1)')})" if text.startswith("range(") and text.endswith(", 1)") else text


def _with_details(text: str, details: Mapping[str, str]) -> str:
    """Add the factory of a defaultdict, or the `maxlen` of a deque, to the text of its items."""
    factory, limit = details.get("default_factory"), details.get("maxlen")
    if factory is not None:
        name, _, items = text.partition("(")
        text = f"{name}({factory.removeprefix('class ').removeprefix('function ')}, {items if items != ')' else '{})'}"
    return text if limit in (None, "None") else f"{text[:-1]}, maxlen={limit})"


@cache
def _fields_of(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields in a dataclass's repr; empty for other classes, and for a class with a metaclass."""
    is_plain = type(cls) is type and any("__dataclass_fields__" in vars(base) for base in cls.__mro__)
    return tuple(field.name for field in fields(cls) if field.repr) if is_plain else ()


def _attributes_of(value: Any) -> dict[str, Any]:
    """Return the values that an object stores in its `__dict__` and its slots, without running code of its class."""
    cls: Any = type(value)
    found: dict[str, Any] = {}
    for name, slot in _slots_of(cls):
        with suppress(AttributeError):  # the slot has no value
            found[name] = slot.__get__(value, cls)
    with suppress(AttributeError, TypeError):
        attributes = object.__getattribute__(value, "__dict__")
        found |= attributes if type(attributes) is dict else {}
    return found


@cache
def _slots_of(cls: Any) -> tuple[tuple[str, Any], ...]:
    slots = ((name, slot) for base in cls.__mro__ for name, slot in vars(base).items())
    return tuple((name, slot) for name, slot in slots if type(slot) is MemberDescriptorType)


def _show_fields(cls: type, values: Mapping[str, Any], show_field: Callable[[Any, int], str], depth: int) -> str:
    if depth == 0:
        return f"{cls.__qualname__}(…)"
    shown = [f"{name}={show_field(value, depth - 1)}" for name, value in list(values.items())[:MAX_ITEMS]]
    more = [f"… {len(values)} in all"] if len(values) > MAX_ITEMS else []
    return f"{cls.__qualname__}({', '.join([*shown, *more])})"


def _show_fields_of_variable(tx: Any, variable: Any, show_member: Callable[[Any, int], str], depth: int) -> str:
    """Return the text of a dataclass instance, with the values that traced code has assigned to its fields.

    Torch: `UserDefinedObjectVariable.value` is the instance, without those assignments.
    """
    assigned, before = assigned_fields(tx, variable), _attributes_of(stored(variable, "value"))
    found = {
        name: (assigned.get(name), before.get(name)) for name in shown_fields(variable) if name in assigned or name in before
    }

    def show_field(field: Any, levels: int) -> str:
        now, value = field
        return show_value(value, levels) if now is None else show_member(now, levels)

    return _show_fields(_class_of(variable) or object, found, show_field, depth)


def shown_fields(variable: Any) -> tuple[str, ...]:
    """Return the names of the fields that a variable's text shows if it is a dataclass; empty for anything else."""
    cls = _class_of(variable) if is_kind(variable, "UserDefinedObjectVariable") else None
    return () if cls is None else _fields_of(cls)


def assigned_fields(tx: Any, variable: Any) -> dict[str, Any]:
    """Return the variables that traced code has assigned to attributes of a dataclass instance, by attribute name.

    Torch: the attributes in `SideEffects.store_attr_mutations`, and `FrozenDataClassVariable.fields` (2.11).
    """
    return {**(stored(variable, "fields") or {}), **tx.output.side_effects.store_attr_mutations.get(variable, {})}


def show_example(variable: Any, example: Any) -> str:
    """Return the text of a tensor or number variable; `example` is its fake tensor or symbolic number (see `example_of`)."""
    return _show_example(example, _class_of(variable))


def _show_example(example: Any, cls: type | None) -> str:
    if not is_tensor(example):
        return _show_symbol(example)
    name = cls.__name__ if cls is not None and cls.__name__ not in ("FakeTensor", "Tensor") else "Tensor"
    parts = [_dtype_name(example.dtype), f"[{', '.join(map(_show_symbol, example.shape))}]"]
    if example.device.type != "cpu":
        parts.append(str(example.device))
    if example.requires_grad and name != "Parameter":
        parts.append("requires_grad")
    return f"{name}({', '.join(parts)})"


@cache
def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def short_names(text: str, shape_env: Any) -> str:
    """Shorten the long symbol names of `dynx.symbols` in a text; the first symbol created becomes, for example, `s0`.

    Torch's own names, such as `s77`, are kept, so that they match TORCH_LOGS. Torch: `ShapeEnv.var_to_sources` has the symbols
    in order of creation.
    """
    if shape_env is None or _LONG_NAME.search(text) is None:
        return text
    order = {str(symbol): index for index, symbol in enumerate(shape_env.var_to_sources)}
    return _LONG_NAME.sub(lambda match: f"{match[1]}{order[match[0]]}" if match[0] in order else match[0], text)


def _show_symbol(number: Any) -> str:
    """Return the text of a symbolic number, with its value in the call being compiled if backed: `s77=8`, `2*s77=16`, `u0`.

    Torch: `SymNode.expr` and `_hint`; the property `hint` may compute a hint, while reading `_hint` does not.
    """
    node = None if type(number) is int else getattr(number, "node", None)
    if node is None:
        return str(number)
    hint = getattr(node, "_hint", None)
    text = short_names(str(node.expr), getattr(node, "shape_env", None))
    return text if hint is None else f"{text}={hint}"


def _show_items(show_item: Callable[[Any, int], str], items: Any, cls: type, depth: int) -> str:
    name = "torch.Size" if cls.__name__ == "Size" else cls.__name__
    opening, closing = _BRACKETS.get(name, (f"{name}(", ")"))
    has_values = isinstance(items, dict) and (issubclass(cls, Mapping) or not all(map(_is_set_entry, items.values())))
    if has_values:
        opening, closing = ("{", "}") if name == "dict" else (f"{name}({{", "})")
    if not items:
        return f"{name}()" if name in ("set", "frozenset") else f"{opening}{closing}"
    if depth == 0:
        return f"{opening}…{len(items)}…{closing}"
    shown = []
    for item in list(items)[:MAX_ITEMS]:
        text = show_item(_key(item), depth - 1)
        if has_values:
            text += f": {show_item(items[item], depth - 1)}"
        shown.append(text)
    if len(items) > MAX_ITEMS:
        shown.append(f"… {len(items)} in all")
    comma = "," if name == "tuple" and len(shown) == 1 else ""
    return f"{opening}{', '.join(shown)}{comma}{closing}"


def _key(item: Any) -> Any:
    """Return the symbolic variable of a dict key or set member, which torch wraps in `HashableTracker` (attribute `vt`)."""
    return getattr(item, "vt", item) if type(item).__name__ in ("HashableTracker", "_HashableTracker") else item


def _is_set_entry(value: Any) -> bool:
    return is_kind(settled(value), "ConstantVariable") and not is_lazy(settled(value)) and value.value is None


def _show_other(variable: Any) -> str:
    cls = _class_of(variable)
    if cls is None:
        return f"<{type(variable).__name__.removesuffix('Variable')}>"
    if issubclass(cls, Enum) and stored(variable, "value") is not None:
        return show_value(variable.value)
    return f"<{cls.__qualname__}>"


def attribute_name(variable: Any) -> str:
    """Return the name of the attribute or method that a `GetAttrVariable` or `CallMethodVariable` reads."""
    return str(variable.method_name if is_kind(variable, "CallMethodVariable") else variable.name)


def _function_name(variable: Any) -> str:
    for name in ("fn", "value", "_fn"):
        value = getattr(type(variable), name, None) if name == "_fn" else stored(variable, name)
        qualname = getattr(value, "__qualname__", None)
        if qualname is not None:
            return str(qualname)
    fn_name = stored(variable, "fn_name")
    return str(fn_name.value) if fn_name is not None else "?"


def _class_of(variable: Any) -> type | None:
    kind: Any = type(variable)
    if _type_depends_on_value(kind):
        return None
    try:
        cls = variable.python_type()
    except Exception:  # noqa: BLE001 - torch raises many kinds where a variable has no Python type
        return None
    return cls if isinstance(cls, type) else None


@cache
def _type_depends_on_value(cls: Any) -> bool:
    """Return whether `python_type` of a variable class reads the variable's value, which may add guards."""
    return "as_python_constant" in cls.python_type.__code__.co_names


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, judged by its class only; `isinstance` would read the value's `__class__` too."""
    return issubclass(type(value), _tensor())


@cache
def _tensor() -> type:
    from torch import Tensor

    return Tensor


# how to render variables whose text never changes, by manner
PLAIN: Mapping[str, Callable[[Any], str]] = {
    "class": lambda variable: f"class {getattr(variable.value, '__qualname__', variable.value)}",
    "constant": lambda variable: show_value(variable.value),
    "function": lambda variable: f"function {_function_name(variable)}",
    "module": lambda variable: f"module {variable.value.__name__}",
    "null": lambda variable: "<null>",
    "super": lambda variable: "<super>",
}


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
