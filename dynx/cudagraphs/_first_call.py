"""What the first call of a function shows: what it changes, and why a replay could not do the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Number
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.nn import Parameter

from dynx.cudagraphs._arguments import BY_VALUE, Arguments
from dynx.cudagraphs._recordings import Key

_LOOKED_AT = 1 << 26  # bytes, up to which values are compared: some operators change tensors and do not say so
_PLAIN = (*BY_VALUE, Number)
_WITHOUT_STATE = (FunctionType, BuiltinFunctionType, type)


def changes_of(tensors: Sequence[torch.Tensor]) -> Callable[[], list[int]]:
    """Give what tells which of some tensors, by their places, were changed since now."""
    versions = [None if each.is_inference() else each._version for each in tensors]
    values = [_bytes(each).clone() if _is_compared(each) else None for each in tensors]

    def changed() -> list[int]:
        return [
            index
            for index, (each, version, value) in enumerate(zip(tensors, versions, values, strict=True))
            if (version is not None and each._version != version) or (value is not None and not _is_still(each, value))
        ]

    return changed


def _is_compared(tensor: torch.Tensor) -> bool:
    is_small = tensor.layout == torch.strided and tensor.nbytes <= _LOOKED_AT
    return tensor.is_inference() or (is_small and not isinstance(tensor, Parameter))


def _is_still(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    now = _bytes(tensor)
    return now.size() == value.size() and torch.equal(now, value)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Give what a tensor holds as bytes, of which those of NaN are equal too."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    return plain.view(torch.uint8) if plain.numel() else plain


def why_not_alike(key: Key, before: Arguments, after: Arguments, names: Sequence[str], results: Iterable[Any]) -> str:
    """Say why a replay would not do what a call did, by its arguments and results; nothing where it would."""
    if key != after.key or any(one is not other for one, other in zip(before.leaves, after.leaves, strict=True)):
        return "it changes what is in its arguments, which a replay would not do"
    for name, each in zip(names, before.leaves, strict=True):
        if isinstance(each, torch.Tensor):
            if each.layout != torch.strided:
                return f"{name} is a sparse tensor"
        elif not isinstance(each, (*_PLAIN, *_WITHOUT_STATE)):
            return f"{name} is a {type(each).__name__}, inside of which a change is not seen"
    for each in results:
        if not isinstance(each, (torch.Tensor, *_PLAIN, *_WITHOUT_STATE)):
            return f"it gives a {type(each).__name__}, which a replay would not make anew"
    return ""


def holding(values: Any) -> Callable[[], bool]:
    """Hold what is small; gives what tells whether the tensors and modules are still there, which others are to hold."""
    leaves = list(_leaves(values))
    weak = [weakref.ref(each) for each in leaves if isinstance(each, (torch.Tensor, torch.nn.Module))]
    held = [each for each in leaves if not isinstance(each, (torch.Tensor, torch.nn.Module, dict, set))]

    def are_there() -> bool:
        return held is not None and all(each() is not None for each in weak)

    return are_there


def _leaves(values: Any) -> Iterator[Any]:
    if isinstance(values, (list, tuple)):
        for each in values:
            yield from _leaves(each)
    else:
        yield values


def memory_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Give where the memory begins that tensors lie in, of those that have some."""
    return [address for each in tensors if (address := each.untyped_storage().data_ptr())]


def share_memory(tensors: Sequence[torch.Tensor], others: frozenset[int]) -> bool:
    """Tell whether tensors lie in the same memory as each other, or in that of others."""
    found = memory_of(tensors)
    return len(set(found)) < len(found) or not others.isdisjoint(found)
