"""Convert records to JSON data and back.

A reader keeps fields that its version of dynx does not know, in `extra`. A field of the wrong type makes the whole record
invalid, because a partly read record would be wrong.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from dynx.records.record import Record

R = TypeVar("R", bound=Record)

NAMES: dict[str, type[Record]] = {}  # the "type" of a record in JSON, filled by `register`
_NAME_OF: dict[type[Record], str] = {}
_INT_BITS = 63  # of sizes, counts and line numbers: sums of them still fit a float
_MAX_TEXT = 100_000  # characters of one string; longer strings come from a broken or hostile file


class InvalidRecord(ValueError):
    """Raised if JSON data lack a field of a record, or have a field of the wrong type."""


def register(name: str, cls: type[Record]) -> None:
    """Register a record class under a name: the value of `"type"` in its JSON data, by which a reader finds the class.

    A class that is defined again, as in a notebook, replaces the earlier one. Raises ValueError if the name belongs to another
    class.
    """
    known = NAMES.get(name, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"the record type {name!r} is already registered for class {known.__name__}\n  choose another name")
    NAMES[name] = cls
    _NAME_OF[cls] = name


def named(name: str) -> Callable[[type[R]], type[R]]:
    """Return a decorator that registers a class as `name`; write it above `@dataclass(slots=True)`, which makes a new class."""

    def decorate(cls: type[R]) -> type[R]:
        register(name, cls)
        return cls

    return decorate


def to_data(record: Record) -> dict[str, Any]:
    """Convert a record to JSON data; fields at their default are left out."""
    data: dict[str, Any] = {}
    if type(record) in _NAME_OF:
        data["type"] = _NAME_OF[type(record)]
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name == "extra" or "in_process" in field.metadata or value == _default(field):
            continue
        data[field.name] = _plain(value)
    return {**record.extra, **data}


def from_data(cls: type[R], data: object) -> R:
    """Build a record of type `cls`. Raises `InvalidRecord` when a field is missing or has the wrong type."""
    if not isinstance(data, dict):
        raise InvalidRecord(f"{cls.__name__} is {_kind(data)}, expected a JSON object")
    values: dict[str, Any] = {}
    hints = _hints(cast("Any", cls))
    for field in fields(cls):
        if field.name == "extra" or "in_process" in field.metadata:
            continue
        if field.name in data:
            values[field.name] = _typed(hints[field.name], data[field.name], f"{cls.__name__}.{field.name}")
        elif _default(field) is MISSING:
            raise InvalidRecord(f"{cls.__name__}.{field.name} is missing")
    extra = {visible(str(k)): _finite(v) for k, v in data.items() if k not in hints and k != "type"}
    return cls(**values, extra=extra)


def _finite(value: Any) -> Any:
    """Return JSON data with NaN and infinities replaced by strings, since JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_finite, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def visible(text: str) -> str:
    """Return a text with control characters (not newline, tab) and bidirectional marks escaped: a run file may be hostile."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return to_data(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _typed(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _optional(get_args(hint), value, where)
    if origin is Literal:
        # a newer dynx may know more values: keep the text, which the views then show as it is written
        return _typed(str, value, where)
    if origin is tuple:
        return _tuple(get_args(hint), value, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise InvalidRecord(f"{where} is {_kind(value)}, expected a JSON object")
        item = get_args(hint)[1]
        return {visible(str(k)): _typed(item, v, where) for k, v in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        return from_data(hint, value)
    return _scalar(hint, value, where)


def _optional(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    return _typed(next(hint for hint in hints if hint is not type(None)), value, where)


def _tuple(hints: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InvalidRecord(f"{where} is {_kind(value)}, expected a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(_typed(hints[0], item, where) for item in value)
    if len(value) != len(hints):
        raise InvalidRecord(f"{where} has {len(value)} items, expected {len(hints)}")
    return tuple(_typed(hint, item, where) for hint, item in zip(hints, value, strict=True))


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            raise InvalidRecord(f"{where} is an integer of {value.bit_length()} bits, too large for a float") from None
    if type(value) is not hint:
        raise InvalidRecord(f"{where} is {_kind(value)}, expected {hint.__name__}")
    if hint is int and value.bit_length() > _INT_BITS:
        raise InvalidRecord(f"{where} is an integer of {value.bit_length()} bits; dynx reads at most {_INT_BITS}")
    if hint is float and not math.isfinite(value):
        raise InvalidRecord(f"{where} is {value}, expected a finite number")
    if hint is str:
        if len(value) > _MAX_TEXT:
            value = value[:_MAX_TEXT] + "…"
        return visible(value)
    return value


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", type(None): "null"}.get(type(value), f"a {type(value).__name__}")
