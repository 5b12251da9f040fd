"""Check in the first, uncaptured call of a function which tensors it mutates, and whether a replay could do the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import is_dataclass
from enum import Enum
from numbers import Number
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from dynx.cudagraphs._functions.arguments import BY_VALUE, Arguments
from dynx.cudagraphs._recording.cache import Key
from dynx.cudagraphs._recording.restored_memory import bytes_in
from dynx.cudagraphs._search.bindings import state_read_by

_COPIED = 1 << 26  # bytes: tensors up to this size are compared with a copy, larger ones by checksums
_VALUES = (*BY_VALUE, Number)
_FUNCTIONS = FunctionType, BuiltinFunctionType, MethodDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket
_STATELESS = (*_FUNCTIONS, type)


def change_detector(tensors: Sequence[torch.Tensor]) -> Callable[[], list[int]]:
    """Return a function that returns the indices of the tensors that were mutated since `change_detector` was called."""
    versions = [None if tensor.is_inference() else tensor._version for tensor in tensors]
    contents = [_contents(tensor) if _is_compared(tensor) else None for tensor in tensors]

    def changed() -> list[int]:
        return [
            index
            for index, (tensor, version, content) in enumerate(zip(tensors, versions, contents, strict=True))
            if (version is not None and tensor._version != version) or (content is not None and not _has(tensor, content))
        ]

    return changed


def _is_compared(tensor: torch.Tensor) -> bool:
    """Return whether to compare a tensor's values too: custom kernels may not increment its version counter."""
    if tensor.layout != torch.strided or tensor.is_meta:
        return False
    return tensor.is_inference() or not isinstance(tensor, Parameter)


def _has(tensor: torch.Tensor, content: torch.Tensor) -> bool:
    current = _contents(tensor)
    return current.size() == content.size() and torch.equal(current, content)


def _contents(tensor: torch.Tensor) -> torch.Tensor:
    """Return what shows changes of a tensor: a copy of its bytes or, if it is large, the checksums of its parts."""
    if tensor.nbytes <= _COPIED:
        return bytes_in(tensor).clone()
    return torch.stack([_checksum(bytes_in(part)) for part in _parts(tensor.detach())])


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Split a tensor along its longest dimensions, and yield the parts, each of at most 64 MiB (`_COPIED`)."""
    if tensor.nbytes <= _COPIED:
        yield tensor
        return
    dim = max(range(tensor.dim()), key=tensor.size)
    half = tensor.size(dim) // 2
    yield from _parts(tensor.narrow(dim, 0, half))
    yield from _parts(tensor.narrow(dim, half, tensor.size(dim) - half))


def _checksum(data: torch.Tensor) -> torch.Tensor:
    """Return a 64-bit number that depends on all bytes and their order."""
    padded = torch.nn.functional.pad(data, (0, -data.numel() % 8)).view(torch.int64)
    weights = torch.arange(1, 2 * padded.numel(), 2, device=data.device)  # odd, so that each bit matters
    return (padded ^ (padded >> 29)).mul_(weights).sum()


def why_not_replayable(
    key: Key,
    before: Arguments,
    after: Arguments,
    names: Sequence[str],
    results: Iterable[Any],
    is_part_of_state: Callable[[Any], bool],
    names_in_code: Set[str],
) -> str:
    """Return why a replay could not do what a call with these arguments and results does; "" if it could.

    Args:
        key: Key of the arguments before the call.
        before: The arguments, flattened before the call.
        after: The same arguments, flattened after the call.
        names: Names of the pytree leaves of the arguments, for messages.
        results: Pytree leaves of the results.
        is_part_of_state: Returns whether an argument, such as a module, is accepted although it may change: each call compares
            its state, or the user has promised that it stays unchanged.
        names_in_code: Attribute names in the function's code: a tensor argument with such an attribute cannot be replayed.
    """
    leaves = zip(before.leaves, after.leaves, strict=True)
    if key != after.key or any(old is not new for old, new in leaves):
        return "the function changes the containers among its arguments, which a replay would not do"
    for name, leaf in zip(names, before.leaves, strict=True):
        if isinstance(leaf, torch.Tensor):
            if leaf.layout != torch.strided:
                return f"argument {name} is a sparse tensor"
            if attributes := vars(leaf).keys() & names_in_code:
                what = f"an attribute {min(attributes)}, which a replay would not read"
                return f"argument {name} has {what}\n  pass it as an argument"
            if leaf.is_quantized:
                return f"argument {name} is a quantized tensor, whose scales a replay would not read"
        elif isinstance(leaf, (FunctionType, type, Enum)):
            if read := state_read_by(leaf):
                return f"argument {name} reads {read}, whose changes cannot be detected\n{_REFERENCE}"
        elif _may_change(leaf) and not is_part_of_state(leaf):
            advice = _PYTREE if is_dataclass(leaf) else _REFERENCE if isinstance(leaf, torch.nn.Module) else _PARTS
            return f"argument {name} is of type {type(leaf).__name__}, whose changes cannot be detected\n{advice}"
    for result in results:
        if isinstance(result, torch.Tensor) and result.is_quantized:
            return "the function returns a quantized tensor, whose scales a replay would not set\n  return it dequantized"
        if not isinstance(result, (torch.Tensor, *_VALUES, *_STATELESS)):
            return f"the function returns an object of type {type(result).__name__}, which a replay would not create again"
    return ""


_REFERENCE = "  reference it from the function's closure instead"
_PYTREE = "  make its class a pytree with torch.export.register_dataclass, or pass its tensors and numbers"
_PARTS = "  pass its tensors and numbers; reference what never changes from the closure of the function"


def _may_change(leaf: Any) -> bool:
    """Return whether an argument may change unnoticed: the attributes of an object, for example, are not in the cache key."""
    if isinstance(leaf, (*_STATELESS, Enum, slice)):
        return False
    return not isinstance(leaf, _VALUES) or bool(getattr(leaf, "__dict__", None))  # a subclass of int may have attributes


def liveness_of(values: Any) -> Callable[[], bool]:
    """Return a predicate that is true while the tensors, modules and functions in `values` are alive.

    When one is freed, a key with its address is invalid. The predicate keeps other objects alive, except dicts and sets.
    """
    leaves = list(_leaves(values, set()))
    weak = [weakref.ref(leaf) for leaf in leaves if issubclass(type(leaf), _LARGE)]
    strong = [leaf for leaf in leaves if not issubclass(type(leaf), (*_LARGE, dict, set))]

    def are_alive(held: list[Any] = strong) -> bool:  # the default keeps the small objects alive
        return all(reference() is not None for reference in weak)

    return are_alive


_LARGE = (torch.Tensor, torch.nn.Module, FunctionType)


def _leaves(values: Any, seen: set[int]) -> Iterator[Any]:
    if not issubclass(type(values), (list, tuple)):
        yield values
    elif id(values) not in seen:
        seen.add(id(values))
        for value in values:
            yield from _leaves(value, seen)


def storages_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Return the addresses of the tensors' storages, without those of empty storages."""
    return [address for tensor in tensors if (address := tensor.untyped_storage().data_ptr())]


class Mutations(NamedTuple):
    """The memory that a function mutates; calls whose arguments share it (see `share_memory`) run uncaptured."""

    storages: frozenset[int]  # addresses of storages; no argument may use them
    has_arguments: bool  # whether arguments are mutated: then no two arguments may share memory


def share_memory(tensors: Sequence[torch.Tensor], mutations: Mutations) -> bool:
    """Return whether arguments are in memory that the function mutates, or share memory and the function mutates arguments."""
    storages = storages_of(tensors)
    return not mutations.storages.isdisjoint(storages) or (mutations.has_arguments and len(set(storages)) < len(storages))
