"""Flatten the arguments of a call into pytree leaves, and compare their layouts with those of later calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Number
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from dynx._torch.autograd.transforms import functions_are_transformed
from dynx._torch.ops.fast_checks import layout_check

Match = Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[torch.Tensor] | None]

_OF_TORCH = torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size
BY_VALUE = (int, str, bytes, bool, type(None), Enum, range, type(...), *_OF_TORCH)  # types whose objects are compared by value


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call as pytree leaves, with their containers as a TreeSpec."""

    leaves: tuple[Any, ...]
    spec: TreeSpec

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    @property
    def others(self) -> list[Any]:
        return [leaf for leaf in self.leaves if not isinstance(leaf, torch.Tensor)]

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable key of the arguments: containers, tensor layouts, other values, and which tensors are the same object."""
        return (str(self.spec), *map(_key_of, self.leaves), *_same_as(self.tensors))

    def call(self, function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Call a function with these arguments, their tensors replaced by `tensors`.

        `tensors` has one entry for each tensor argument. If one tensor was passed several times, the entry of its first
        occurrence replaces all of them.
        """
        replacements = iter([tensors[index] for index in same] if (same := _same_as(self.tensors)) else tensors)
        leaves = [next(replacements) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return function(*args, **kwargs)


def arguments_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    leaves, spec = tree_flatten((args, dict(kwargs)))
    return Arguments(tuple(leaves), spec)


def argument_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Return a name for each pytree leaf of a call's arguments, such as `x`, `batch['ids']` or `args[0]`.

    The names are in the order of the leaves of `arguments_of`.
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except Exception:  # noqa: BLE001 - the function has no signature, or a wrong one
        bound = {}
    names = {id(value): name for name, value in bound.items()}
    leaf_names = []
    for position, value in [*((f"args[{index}]", arg) for index, arg in enumerate(args)), *kwargs.items()]:
        paths, _ = tree_flatten_with_path(value)
        leaf_names += [names.get(id(value), position) + keystr(path) for path, _ in paths]
    return leaf_names


def matcher(arguments: Arguments) -> Match:
    """Return a function that takes the `args` and `kwargs` of a call, and returns their tensors if the call fits `arguments`.

    If containers, layouts of tensors, repeated tensors or other values differ from `arguments`, it returns None.
    """
    tensors = arguments.tensors
    count, key = len(tensors), arguments.key
    check: Callable[..., bool] = layout_check(tensors) if tensors else _is_untransformed  # both false in transforms
    first, no_keywords = tree_unflatten(list(arguments.leaves), arguments.spec)
    same = _same_as(tensors)

    def match_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        return args if not kwargs and len(args) == 1 and check(*args) else None

    def match_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        if kwargs or len(args) != count or not check(*args):
            return None
        if (same or len(set(map(id, args))) < count) and _same_as(args) != same:
            return None
        return args

    def match_any(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        candidate = arguments_of(args, kwargs)
        if functions_are_transformed():
            return None
        return candidate.tensors if candidate.key == key else None

    is_flat = not no_keywords and len(first) == count and all(isinstance(arg, torch.Tensor) for arg in first)
    return match_any if not is_flat else match_tensor if count == 1 else match_tensors


def _is_untransformed() -> bool:
    return not functions_are_transformed()


def _same_as(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return for each tensor the index of the first tensor that is the same object; an empty list if no two are the same."""
    if len(ids := list(map(id, tensors))) == len(set(ids)):
        return []
    return list(map(ids.index, ids))


def _key_of(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        bits = leaf.is_conj(), leaf.is_neg()
        return type(leaf), leaf.dtype, leaf.device, leaf.size(), leaf.stride(), leaf.requires_grad, bits
    if isinstance(leaf, (float, complex)):
        return type(leaf), repr(leaf)  # 0.0 == -0.0, and NaN != NaN
    if isinstance(leaf, BY_VALUE):
        return type(leaf), leaf
    if isinstance(leaf, slice):
        return slice, *map(_key_of, (leaf.start, leaf.stop, leaf.step))
    return type(leaf), repr(leaf) if isinstance(leaf, Number) else id(leaf)  # a Number of NumPy, for example
