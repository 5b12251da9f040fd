"""Whether two Python values are the same for a recording: numbers and text by value, other objects by identity."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import is_
from typing import Any

import torch

_EXACT = bool, int, str, bytes, torch.dtype, torch.device, torch.Size, range, type(None), type(...)
_NUMBERS = float, complex
PLAIN = frozenset((*_EXACT, *_NUMBERS))  # types whose objects are compared by value


def identity_of(value: Any) -> Hashable:
    """Return a key that differs for values that are not the same: type and value of numbers and text, else the id."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    if kind in _NUMBERS:
        return kind, repr(value)  # 0.0 == -0.0, and NaN != NaN
    if kind is tuple and all(type(element) in PLAIN for element in value):
        return tuple(map(identity_of, value))
    return id(value)


def are_same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether values in the same places are the same. Methods of users' classes are not called."""
    return len(values) == len(others) and (all(map(is_, values, others)) or all(map(_is_same, values, others)))


def _is_same(value: Any, other: Any) -> bool:
    return value is other or (type(value) in PLAIN and identity_of(value) == identity_of(other))
