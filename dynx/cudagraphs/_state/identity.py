"""Whether two values are the same for a recording: numbers and text by value, tensors by address, others by identity.

A class is the same while its attributes and methods are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter, is_
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dynx._torch.ops.fast_checks import attributes_of_class

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


def is_object(value: Any) -> bool:
    """Return whether a value is a tensor or another object, and no number, text, module, function or class."""
    return not (type(value) in PLAIN or issubclass(type(value), (nn.Module, FunctionType, type)))


needs_gradient = attrgetter("requires_grad")


def layout_of(tensor: torch.Tensor) -> Hashable:
    """Return address, sizes, strides and dtype of a tensor; its id if it has no address (sparse or uninitialized)."""
    if is_lazy(tensor) or not has_address(tensor):
        return id(tensor)
    return tensor.data_ptr(), tensor.size(), tensor.stride(), tensor.dtype


def has_address(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not is_lazy(tensor)


def classes_of(modules: Iterable[nn.Module]) -> list[type]:
    """Return the classes of modules and their bases, each once."""
    bases = (base for kind in dict.fromkeys(map(type, modules)) for base in kind.__mro__)
    return [base for base in dict.fromkeys(bases) if base is not object]


def class_dicts(modules: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """Return the dicts that hold the attributes of the classes of modules."""
    return [attributes_of_class(kind) for kind in classes_of(modules)]


def class_key(kind: type) -> tuple[tuple[str, Hashable], ...]:
    """Return names and identities of what a class defines, without what Python itself adds when it is asked for."""
    return tuple((name, identity_of(value)) for name, value in tuple(vars(kind).items()) if _is_defined(name, value))


def _is_defined(name: str, value: Any) -> bool:
    return not name.startswith("__") or type(value) is FunctionType
