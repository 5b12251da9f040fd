"""How the inputs of a call come to where a recording reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from dynx._torch.ops import foreach
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._runtime.memcpy import copy_of, extent
from dynx.records.cudagraphs import GraphPlan

Stage = Callable[[Sequence[Any]], Callable[[], None] | None]

FEW = 4  # copies that a graph makes one after another


class Staging(NamedTuple):
    """How dynamic inputs reach a recording."""

    stage: Stage  # copies the inputs of a call; gives what is to be done after the replay, where the graph changes some
    in_graph: tuple[int, ...]  # inputs that the graph copies itself
    is_done_by_graph: bool  # nothing is left for `stage` to do
    sources: list[torch.Tensor]  # of those copies, as they are captured
    copied: int  # inputs
    nbytes: int


def staging(inputs: list[Any], plan: GraphPlan, how: str, runtime: Runtime) -> Staging:
    """Give the dynamic ones of `inputs` memory of the recording's own, in the list itself; but those that the graph copies."""
    dynamic = plan.indices("dynamic")
    repeated = {index: dims for index in dynamic if (dims := _repeated(inputs[index]))}
    wanted = how == "memcpy_node" or (how == "auto" and len(dynamic) <= FEW)
    alike = [index for index in dynamic if plan.inputs[index].is_fixed and is_plain(inputs[index])]
    in_graph = tuple(each for each in alike if each not in plan.mutated) if wanted and runtime.copies_in_graph() else ()
    by_hand = [index for index in dynamic if index not in in_graph]
    for index in by_hand:
        inputs[index] = own_copy(inputs[index])
    mine = [_once(inputs[index], repeated.get(index, ())) for index in by_hand]
    written = [(index, inputs[index]) for index in plan.mutated if index in dynamic]
    nbytes = sum(_once(inputs[index], repeated.get(index, ())).nbytes for index in dynamic)
    stage = _stage(by_hand, mine, repeated, written)
    return Staging(stage, in_graph, not by_hand and not written, [inputs[index] for index in in_graph], len(dynamic), nbytes)


def reading(dynamic: tuple[int, ...]) -> Staging:
    """Leave inputs where they are, for a graph that is told to read them there."""
    return Staging(lambda args: None, dynamic, True, [], 0, 0)


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a copy of the bytes of a tensor is one of its values, on any call: complex ones may be conjugated."""
    return is_dense(tensor) and not tensor.is_complex()


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether the elements of a tensor are all the bytes from its first to its last, each once."""
    return tensor.numel() > 0 and not _overlaps(tensor) and extent(tensor) == tensor.numel()


def _repeated(tensor: torch.Tensor) -> tuple[int, ...]:
    """Give the dimensions along which a tensor is the same memory over and over, as `expand` makes them."""
    repeated = tuple(dim for dim, size in enumerate(tensor.size()) if size > 1 and tensor.stride(dim) == 0)
    return () if _overlaps(_once(tensor, repeated)) else repeated


def _once(tensor: torch.Tensor, repeated: Sequence[int]) -> torch.Tensor:
    for dim in repeated:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor, its strides included, so that who reads it finds what it was compiled for."""
    repeated = _repeated(tensor)
    compact = _once(tensor, repeated)
    if _overlaps(compact):
        return tensor.clone()
    copy = copy_of(compact)
    return copy.expand(tensor.size()).detach() if repeated else copy  # no view: autograd forbids to change one of its results


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
        foreach.copy_all(mine, [args[index] for index in dynamic])

    def copy_once(args: Sequence[Any]) -> None:
        foreach.copy_all(mine, [_once(args[index], repeated.get(index, ())) for index in dynamic])

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
