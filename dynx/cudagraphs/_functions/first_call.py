"""What the first call of a function shows: what it changes, and why a replay could not do the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Number
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from dynx.cudagraphs._functions.arguments import BY_VALUE, Arguments
from dynx.cudagraphs._recording.cache import Key

_LOOKED_AT = 1 << 26  # bytes, up to which values are compared: some operators change tensors and do not say so
_PLAIN = (*BY_VALUE, Number)
_FUNCTIONS = FunctionType, BuiltinFunctionType, MethodDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket
_WITHOUT_STATE = (*_FUNCTIONS, type)


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
    if tensor.layout != torch.strided or tensor.is_meta:
        return False
    return tensor.is_inference() or (tensor.nbytes <= _LOOKED_AT and not isinstance(tensor, Parameter))


def _is_still(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    now = _bytes(tensor)
    return now.size() == value.size() and torch.equal(now, value)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Give what a tensor holds as bytes, of which those of NaN are equal too."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    return plain.view(torch.uint8) if plain.numel() else plain


def why_not_alike(
    key: Key, before: Arguments, after: Arguments, names: Sequence[str], results: Iterable[Any], covers: Callable[[Any], bool]
) -> str:
    """Say why a replay would not do what a call did, by its arguments and results; nothing where it would."""
    if key != after.key or any(one is not other for one, other in zip(before.leaves, after.leaves, strict=True)):
        return "it changes what is in its arguments, which a replay would not do"
    for name, each in zip(names, before.leaves, strict=True):
        if isinstance(each, torch.Tensor):
            if each.layout != torch.strided:
                return f"{name} is a sparse tensor"
        elif not isinstance(each, (*_PLAIN, *_WITHOUT_STATE)) and not covers(each):
            kind = type(each).__name__
            return f"{name} is a {kind}, inside of which a change is not seen\n  close over it, if only tensors change in it"
    for each in results:
        if not isinstance(each, (torch.Tensor, *_PLAIN, *_WITHOUT_STATE)):
            return f"it gives a {type(each).__name__}, which a replay would not make anew"
    return ""


def holding(values: Any) -> Callable[[], bool]:
    """Hold what is small; gives what tells whether the tensors and modules are still there, which others are to hold."""
    leaves = list(_leaves(values, set()))
    weak = [weakref.ref(each) for each in leaves if isinstance(each, _LARGE)]
    held = [each for each in leaves if not isinstance(each, (*_LARGE, dict, set))]

    def are_there(held: list[Any] = held) -> bool:  # what is held lives as long
        return all(each() is not None for each in weak)

    return are_there


_LARGE = (torch.Tensor, torch.nn.Module, FunctionType)


def _leaves(values: Any, seen: set[int]) -> Iterator[Any]:
    if not isinstance(values, (list, tuple)):
        yield values
    elif id(values) not in seen:
        seen.add(id(values))
        for each in values:
            yield from _leaves(each, seen)


def memory_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Give where the memory begins that tensors lie in, of those that have some."""
    return [address for each in tensors if (address := each.untyped_storage().data_ptr())]


class Changes(NamedTuple):
    """What a function changes."""

    memory: frozenset[int]  # that its arguments must not lie in
    are_arguments: bool  # no two of which must lie in the same memory, then


def are_mixed(tensors: Sequence[torch.Tensor], changes: Changes) -> bool:
    """Tell whether what a function changes may be seen through another argument."""
    found = memory_of(tensors)
    return not changes.memory.isdisjoint(found) or (changes.are_arguments and len(set(found)) < len(found))
