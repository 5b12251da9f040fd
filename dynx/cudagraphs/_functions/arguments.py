"""The arguments of a call: its tensors, how they are laid out, and what else there is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Number
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from dynx._torch.ops.fast_checks import layout_check

Match = Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[torch.Tensor] | None]

BY_VALUE = (
    int,
    str,
    bytes,
    bool,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    Enum,
    range,
    type(...),
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments taken apart, containers and all."""

    leaves: tuple[Any, ...]
    spec: TreeSpec

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [each for each in self.leaves if isinstance(each, torch.Tensor)]

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything but the contents of the tensors."""
        return (str(self.spec), *map(_key_of, self.leaves))

    def call(self, function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Call a function with these arguments, but other tensors."""
        others = iter(tensors)
        leaves = [next(others) if isinstance(each, torch.Tensor) else each for each in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return function(*args, **kwargs)


def arguments_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    leaves, spec = tree_flatten((args, dict(kwargs)))
    return Arguments(tuple(leaves), spec)


def names_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Name the leaves of a call as the function's parameters are named, in the order of `arguments_of`."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except Exception:  # noqa: BLE001  # it has no signature, or one that does not say the truth
        bound = {}
    names = {id(value): name for name, value in bound.items()}
    found = []
    for top, value in [*((f"args[{index}]", each) for index, each in enumerate(args)), *kwargs.items()]:
        paths, _ = tree_flatten_with_path(value)
        found += [names.get(id(value), top) + keystr(path) for path, _ in paths]
    return found


def matching(arguments: Arguments) -> Match:
    """Give what takes the tensors out of a call that is laid out like this one; None of another."""
    tensors = arguments.tensors
    count, key = len(tensors), arguments.key
    check = layout_check(tensors)
    first, no_keywords = tree_unflatten(list(arguments.leaves), arguments.spec)

    def match_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        return args if not kwargs and len(args) == count and check(*args) else None

    def match_any(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        given = arguments_of(args, kwargs)
        return given.tensors if given.key == key else None

    is_flat = not no_keywords and len(first) == count and all(isinstance(each, torch.Tensor) for each in first)
    return match_tensors if is_flat else match_any


def _key_of(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        bits = leaf.is_conj(), leaf.is_neg()
        return type(leaf), leaf.dtype, leaf.device, leaf.size(), leaf.stride(), leaf.requires_grad, bits
    if isinstance(leaf, (float, complex)):
        return type(leaf), repr(leaf)  # 0.0 == -0.0, and NaN is equal to nothing
    if isinstance(leaf, BY_VALUE):
        return type(leaf), leaf
    return type(leaf), repr(leaf) if isinstance(leaf, Number) else id(leaf)  # of NumPy, for one
