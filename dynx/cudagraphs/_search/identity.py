"""Compare values for a recording: numbers, text and containers of them by value, everything else by identity.

Classes are compared by their attributes and methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from operator import attrgetter, is_
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dynx._torch.ops.fast_checks import attributes_of_class

_EXACT = bool, int, str, bytes, torch.dtype, torch.device, torch.Size, range, type(None), type(...)
_NUMBERS = float, complex
_CONTAINERS = tuple, list, dict, set, frozenset, deque
_LONG = 100  # elements, up to which containers of numbers and text are compared by value
PLAIN = frozenset((*_EXACT, *_NUMBERS))  # types whose objects are compared by value


def identity_of(value: Any) -> Hashable:
    """Return a key of a value: type and value of numbers, text and short containers of them; the id of everything else."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    if kind in _NUMBERS:
        return kind, repr(value)  # 0.0 == -0.0, and NaN != NaN
    if kind in _CONTAINERS and len(value) <= _LONG:
        elements = [*value, *value.values()] if kind is dict else list(value)
        if all(type(element) in PLAIN for element in elements):
            identities = map(identity_of, elements)
            return kind, frozenset(identities) if kind in (set, frozenset) else tuple(identities)
    return id(value)


def are_identical(objects: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two sequences hold the same objects at the same indices."""
    return len(objects) == len(others) and all(map(is_, objects, others))


def are_same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether values at equal indices are the same object, or equal numbers or text. Calls no user-defined method."""
    # without `are_identical`: this runs in each call, for each name
    return len(values) == len(others) and (all(map(is_, values, others)) or all(map(_is_same, values, others)))


def _is_same(value: Any, other: Any) -> bool:
    return value is other or (type(value) in PLAIN and identity_of(value) == identity_of(other))


def tensors_in(value: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield `value` if it is a tensor, else tensors in its elements and attributes, to a depth of `depth`. Skips modules."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        yield value
    elif depth > 0 and kind not in PLAIN and not issubclass(kind, (nn.Module, FunctionType, type)):
        inner = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, _CONTAINERS) else []
        for part in (*inner, *getattr(value, "__dict__", {}).values()):
            yield from tensors_in(part, depth - 1)


def holds_tensors(value: Any) -> bool:
    """Return whether a value is a tensor, or a container or object with tensors in it."""
    return next(tensors_in(value), None) is not None


needs_gradient = attrgetter("requires_grad")


def layout_of(tensor: torch.Tensor) -> Hashable:
    """Return address, sizes, strides and dtype of a tensor; its id if it has no address (sparse or uninitialized)."""
    if is_lazy(tensor) or not has_address(tensor):
        return id(tensor)
    return tensor.data_ptr(), tensor.size(), tensor.stride(), tensor.dtype


def has_address(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not is_lazy(tensor)


def classes_of(objects: Iterable[object]) -> list[type]:
    """Return the classes of objects and their bases, each once."""
    bases = (base for kind in dict.fromkeys(map(type, objects)) for base in kind.__mro__)
    return [base for base in dict.fromkeys(bases) if base is not object]


def class_dicts(objects: Iterable[object]) -> list[dict[str, Any]]:
    """Return the dicts that hold the attributes of the classes of objects."""
    return [attributes_of_class(kind) for kind in classes_of(objects)]


def class_key(kind: type) -> tuple[tuple[str, Hashable], ...]:
    """Return names and identities of a class's attributes, without data such as `__doc__`, which Python may add later."""
    return tuple((name, identity_of(value)) for name, value in tuple(vars(kind).items()) if _is_defined(name, value))


def _is_defined(name: str, value: Any) -> bool:
    return not name.startswith("__") or type(value) is FunctionType
