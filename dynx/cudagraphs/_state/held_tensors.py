"""Undo what a capture assigns in objects and containers: the tensors that it makes have no values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

_MISSING = object()


class _Place(NamedTuple):
    """Where an object or container keeps values, and what it kept."""

    text: str
    values: dict[Any, Any] | list[Any]
    before: dict[Any, Any] | list[Any]


def snapshot_of_tensors(objects: Sequence[Any]) -> Callable[[], str]:
    """Return a function that undoes assignments of tensors made after this call, and returns the names of where they were made.

    Other changes are left as they are: another thread may make them meanwhile.

    Args:
        objects: Lists, dicts, and objects with attributes in a `__dict__`; others are left out.
    """
    places = [place for owner in objects if (place := _place_of(owner)) is not None]

    def restore() -> str:
        return ", ".join(dict.fromkeys(name for place in places for name in _restore(place)))

    return restore


def _place_of(owner: Any) -> _Place | None:
    kind = type(owner)
    if issubclass(kind, (list, dict)):
        return _Place(f"an element of a {kind.__name__}", owner, owner.copy())
    try:
        attributes = object.__getattribute__(owner, "__dict__")
    except (AttributeError, TypeError):
        return None
    return _Place("", attributes, attributes.copy()) if type(attributes) is dict else None


def _restore(place: _Place) -> list[str]:
    """Undo assignments of tensors in one place; return their names."""
    if isinstance(place.values, list):
        known = set(map(id, place.before))
        if not any(_is_tensor(value) and id(value) not in known for value in place.values):
            return []
        place.values[:] = place.before
        return [place.text]
    assert isinstance(place.before, dict)
    assigned = [
        key for key, value in place.values.items() if _is_tensor(value) and value is not place.before.get(key, _MISSING)
    ]
    for key in assigned:
        if key in place.before:
            place.values[key] = place.before[key]
        else:
            del place.values[key]
    return [place.text or str(key) for key in assigned]


def _is_tensor(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)
