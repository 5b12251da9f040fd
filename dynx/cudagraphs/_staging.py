"""How the inputs of a call come to where a recording reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dynx.records.cudagraphs import GraphPlan

Stage = Callable[[Sequence[Any]], Callable[[], None] | None]


def staging(inputs: list[Any], plan: GraphPlan) -> tuple[Stage, int, int]:
    """Give the dynamic ones of `inputs` memory of the recording's own, in the list itself.

    Gives what copies the inputs of a call there, how many it copies and their bytes. That gives what is to be done after the
    replay where the graph changes some: they are copied back.
    """
    dynamic = plan.indices("dynamic")
    repeated = {index: dims for index in dynamic if (dims := _repeated(inputs[index]))}
    for index in dynamic:
        inputs[index] = _own(inputs[index], repeated.get(index, ()))
    mine = [_once(inputs[index], repeated.get(index, ())) for index in dynamic]
    written = [(index, inputs[index]) for index in plan.mutated if index in dynamic]
    return _stage(dynamic, mine, repeated, written), len(mine), sum(each.nbytes for each in mine)


def _repeated(tensor: torch.Tensor) -> tuple[int, ...]:
    """Give the dimensions along which a tensor is the same memory over and over, as `expand` makes them."""
    repeated = tuple(dim for dim, size in enumerate(tensor.size()) if size > 1 and tensor.stride(dim) == 0)
    return () if _overlaps(_once(tensor, repeated)) else repeated


def _once(tensor: torch.Tensor, repeated: Sequence[int]) -> torch.Tensor:
    for dim in repeated:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _own(tensor: torch.Tensor, repeated: Sequence[int]) -> torch.Tensor:
    """Copy a tensor, its strides included, so that the graph finds what it was compiled for."""
    compact = _once(tensor, repeated)
    if _overlaps(compact):
        return tensor.clone()
    own = torch.empty_strided(compact.size(), compact.stride(), dtype=tensor.dtype, device=tensor.device).copy_(compact)
    return own.expand(tensor.size())


def _overlaps(tensor: torch.Tensor) -> bool:
    """Tell whether elements share memory: whether a step along a dimension is shorter than what lies below it."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1 and stride < extent:
            return True
        extent += max(0, size - 1) * stride
    return False


def _stage(
    dynamic: Sequence[int],
    mine: list[torch.Tensor],
    repeated: Mapping[int, Sequence[int]],
    written: list[tuple[int, torch.Tensor]],
) -> Stage:
    def copy_none(args: Sequence[Any]) -> None:
        pass

    def copy_one(args: Sequence[Any]) -> None:
        mine[0].copy_(args[dynamic[0]])

    def copy_all(args: Sequence[Any]) -> None:
        torch._foreach_copy_(mine, [args[index] for index in dynamic])

    def copy_once(args: Sequence[Any]) -> None:
        torch._foreach_copy_(mine, [_once(args[index], repeated.get(index, ())) for index in dynamic])

    copy = copy_none if not mine else copy_once if repeated else copy_one if len(mine) == 1 else copy_all

    def copy_there_and_back(args: Sequence[Any]) -> Callable[[], None]:
        copy(args)
        return _copy_back([(args[index], each) for index, each in written])

    return copy_there_and_back if written else copy


def _copy_back(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], None]:
    def copy() -> None:
        for given, mine in pairs:
            given.copy_(mine)

    return copy
