"""Keep what is needed to trace a call of a function again after its frame is gone, without keeping its data alive."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dynx._bytecode.safe_read import is_module
from dynx._torch.retracing.modes import Modes, modes_now
from dynx._torch.retracing.tensors import TensorMetadata, is_plain, metadata_of, tensor_with

_ATOMS = (int, float, complex, bool, str, bytes, type(None), type(...), slice, range)
_MOST_ITEMS = 10_000  # of all containers and objects in the variables
_MOST_DEEP = 50  # containers and objects in each other
_UNKNOWN = object()


@dataclass(frozen=True, slots=True, eq=False)
class KeptCall:
    """The local variables of a call: tensors as metadata, objects as weak references with their attributes, numbers themselves.

    `modes` are the grad mode and the inference mode of the call.
    """

    _kept: Mapping[str, Any]
    modes: Modes

    def variables(self, now: Mapping[str, Any], *, copies: bool) -> dict[str, Any] | None:
        """Return the local variables, with new tensors for those that are gone; None if that would need much memory.

        Of an object that is gone, or that could not be kept, the variable of the present call, `now`, takes the place. With
        `copies`, an object whose attributes have changed is replaced by a copy with its former attributes.
        """
        restored = _Restored({}, copies)
        variables = {name: restored.value(kept, now.get(name, _UNKNOWN)) for name, kept in self._kept.items()}
        return None if any(value is _UNKNOWN for value in variables.values()) else variables

    def changed(self, now: Mapping[str, Any]) -> dict[str, str]:
        """Return the value then of each number and size that is another one now, by source: `x.size()[0]`, `n`."""
        seen: set[int] = set()
        changes = (_changes(name, kept, now.get(name), seen) for name, kept in self._kept.items())
        return {source: value for each in changes for source, value in each}


def keep(variables: Mapping[str, Any]) -> KeptCall:
    """Keep the local variables of a call."""
    known: dict[int, TensorMetadata | _Object] = {}
    budget = [_MOST_ITEMS]
    return KeptCall({name: _kept(value, known, budget) for name, value in variables.items()}, modes_now())


@dataclass(frozen=True, slots=True, eq=False)
class _Container:
    cls: Any  # list, tuple or dict
    keys: tuple[Any, ...]
    items: tuple[Any, ...]

    def items_of(self, now: Any) -> list[Any]:
        """Return the items of another container, `_UNKNOWN` for each that it lacks."""
        if type(now) is not self.cls:
            return [_UNKNOWN for _ in self.items]
        if type(now) is dict:
            return [now.get(key, _UNKNOWN) for key in self.keys]
        return [now[index] if index < len(now) else _UNKNOWN for index in self.keys]


@dataclass(frozen=True, slots=True, eq=False)
class _Object:
    reference: weakref.ref[Any]
    cls: Any
    attributes: dict[str, Any]

    def attributes_of(self, now: Any) -> Mapping[str, Any]:
        """Return the attributes of another object, if it is of the same class."""
        return (_attributes(now) or {}) if type(now) is self.cls else {}


def _kept(value: Any, known: dict[int, TensorMetadata | _Object], budget: list[int], depth: int = 0) -> Any:
    if type(value) in _ATOMS:
        return value
    if id(value) in known:
        return known[id(value)]
    if is_plain(value):
        return known.setdefault(id(value), metadata_of(value))
    if depth > _MOST_DEEP:
        return _UNKNOWN
    if type(value) in (list, tuple, dict):
        budget[0] -= len(value)
        keys = tuple(value) if type(value) is dict else tuple(range(len(value)))
        if budget[0] < 0 or any(type(key) not in _ATOMS for key in keys):
            return _UNKNOWN
        items = value.values() if type(value) is dict else value
        return _Container(type(value), keys, tuple(_kept(item, known, budget, depth + 1) for item in items))
    try:
        reference = weakref.ref(value)
    except TypeError:
        return _UNKNOWN
    attributes = _attributes(value)
    budget[0] -= len(attributes or ())
    if attributes is None or budget[0] < 0:
        return reference
    known[id(value)] = kept = _Object(reference, type(value), {})  # before its attributes, which may refer to it
    kept.attributes.update({name: _kept(attribute, known, budget, depth + 1) for name, attribute in attributes.items()})
    return kept


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object; None for a module, which has many, and if no copy can be made without user code."""
    defined = {name for base in type(value).__mro__[:-1] for name in vars(base)}
    if is_module(value) or not defined.isdisjoint(("__new__", "__del__")):
        return None
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Restored:
    """Values of an earlier call: each tensor and each object once."""

    made: dict[int, Any]
    copies: bool  # of objects whose attributes have changed

    def value(self, kept: Any, now: Any) -> Any:
        """Return the value that was kept; the present one of an object that is gone; `_UNKNOWN` if there is none."""
        if isinstance(kept, TensorMetadata):
            if id(kept) not in self.made:
                self.made[id(kept)] = tensor_with(kept)
            tensor = self.made[id(kept)]
            return _UNKNOWN if tensor is None else tensor
        if isinstance(kept, _Container):
            present = kept.items_of(now)
            items = [self.value(*pair) for pair in zip(kept.items, present, strict=True)]
            if any(item is _UNKNOWN for item in items):
                return _UNKNOWN
            if type(now) is kept.cls and len(now) == len(items) and all(map(operator.is_, items, present)):
                return now
            return dict(zip(kept.keys, items, strict=True)) if kept.cls is dict else kept.cls(items)
        if isinstance(kept, _Object):
            return self._object(kept, now)
        if isinstance(kept, weakref.ref):
            alive = kept()
            return now if alive is None else alive
        return now if kept is _UNKNOWN else kept

    def _object(self, kept: _Object, now: Any) -> Any:
        alive = kept.reference()
        alive = now if alive is None else alive
        if not self.copies:
            return alive
        if id(kept) not in self.made:
            self.made[id(kept)] = copy = object.__new__(kept.cls)
            present = kept.attributes_of(alive)
            attributes = {name: self.value(each, present.get(name, _UNKNOWN)) for name, each in kept.attributes.items()}
            if any(value is _UNKNOWN for value in attributes.values()):
                self.made[id(kept)] = _UNKNOWN
            elif present.keys() == attributes.keys() and all(attributes[name] is present[name] for name in present):
                self.made[id(kept)] = alive  # which may be compared with `is`
            else:
                object.__getattribute__(copy, "__dict__").update(attributes)
        return self.made[id(kept)]


def _changes(source: str, kept: Any, now: Any, seen: set[int]) -> Iterator[tuple[str, str]]:
    if isinstance(kept, TensorMetadata) and is_plain(now) and len(kept.size) == now.dim():
        sizes = enumerate(zip(kept.size, now.size(), strict=True))
        yield from ((f"{source}.size()[{dim}]", str(first)) for dim, (first, size) in sizes if first != size)
    elif isinstance(kept, _Container):
        for key, first, item in zip(kept.keys, kept.items, kept.items_of(now), strict=True):
            yield from _changes(f"{source}[{key!r}]", first, item, seen)
    elif isinstance(kept, _Object) and id(kept) not in seen:
        seen.add(id(kept))
        present = kept.attributes_of(now)
        for name, first in kept.attributes.items():
            yield from _changes(f"{source}.{name}", first, present.get(name), seen)
    elif type(kept) in (int, float, str, bool) and type(now) is type(kept) and now != kept:
        yield source, str(kept)
