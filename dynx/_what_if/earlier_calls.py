"""Keep what is needed to trace a call of a function again after its frame is gone, without keeping its data alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dynx._torch.retracing.modes import Modes, modes_now
from dynx._torch.retracing.tensors import TensorMetadata, is_plain, metadata_of, tensor_with

_ATOMS = (int, float, complex, bool, str, bytes, type(None), type(...), slice, range)
_MOST_ITEMS = 10_000  # of all containers in the variables
_UNKNOWN = object()


@dataclass(frozen=True, slots=True, eq=False)
class KeptCall:
    """The local variables of a call: tensors as metadata, other objects as weak references, numbers and texts themselves.

    `modes` are the grad mode and the inference mode of the call.
    """

    _kept: Mapping[str, Any]
    modes: Modes

    def variables(self, now: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the local variables, with new tensors for those that are gone; None if that would need much memory.

        Of an object that is gone, or that could not be kept, the variable of the present call, `now`, takes the place.
        """
        tensors: dict[int, Any] = {}
        restored = {name: _restored(kept, now.get(name, _UNKNOWN), tensors) for name, kept in self._kept.items()}
        return None if any(value is _UNKNOWN for value in restored.values()) else restored

    def changed(self, now: Mapping[str, Any]) -> dict[str, str]:
        """Return the value then of each number and size that is another one now, by source: `x.size()[0]`, `n`."""
        return {source: value for name, kept in self._kept.items() for source, value in _changes(name, kept, now.get(name))}


def keep(variables: Mapping[str, Any]) -> KeptCall:
    """Keep the local variables of a call."""
    tensors: dict[int, TensorMetadata] = {}
    budget = [_MOST_ITEMS]
    return KeptCall({name: _kept(value, tensors, budget) for name, value in variables.items()}, modes_now())


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


def _kept(value: Any, tensors: dict[int, TensorMetadata], budget: list[int]) -> Any:
    if type(value) in _ATOMS:
        return value
    if is_plain(value):
        return tensors.setdefault(id(value), metadata_of(value))
    if type(value) in (list, tuple, dict):
        budget[0] -= len(value)
        keys = tuple(value) if type(value) is dict else tuple(range(len(value)))
        if budget[0] < 0 or any(type(key) not in _ATOMS for key in keys):
            return _UNKNOWN
        items = value.values() if type(value) is dict else value
        return _Container(type(value), keys, tuple(_kept(item, tensors, budget) for item in items))
    try:
        return weakref.ref(value)
    except TypeError:
        return _UNKNOWN


def _restored(kept: Any, now: Any, tensors: dict[int, Any]) -> Any:
    if isinstance(kept, TensorMetadata):
        if id(kept) not in tensors:
            tensors[id(kept)] = tensor_with(kept)
        tensor = tensors[id(kept)]
        return _UNKNOWN if tensor is None else tensor
    if isinstance(kept, _Container):
        items = [_restored(*pair, tensors) for pair in zip(kept.items, kept.items_of(now), strict=True)]
        if any(item is _UNKNOWN for item in items):
            return _UNKNOWN
        return dict(zip(kept.keys, items, strict=True)) if kept.cls is dict else kept.cls(items)
    if isinstance(kept, weakref.ref):
        alive = kept()
        return now if alive is None else alive
    return now if kept is _UNKNOWN else kept


def _changes(source: str, kept: Any, now: Any) -> Iterator[tuple[str, str]]:
    if isinstance(kept, TensorMetadata) and is_plain(now) and len(kept.size) == now.dim():
        sizes = enumerate(zip(kept.size, now.size(), strict=True))
        yield from ((f"{source}.size()[{dim}]", str(first)) for dim, (first, size) in sizes if first != size)
    elif isinstance(kept, _Container):
        for key, first, item in zip(kept.keys, kept.items, kept.items_of(now), strict=True):
            yield from _changes(f"{source}[{key!r}]", first, item)
    elif type(kept) in (int, float, str, bool) and type(now) is type(kept) and now != kept:
        yield source, str(kept)
