"""Copy the dynamic inputs of a call to the memory that a recording reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from dynx._torch.ops import foreach
from dynx._torch.ops.allocation import allocator_like
from dynx.cudagraphs._runtime.memcpy import copy_of, extent
from dynx.records.cudagraphs import GraphPlan

Stage = Callable[[Sequence[Any]], Callable[[], None] | None]


class StagedInputs(NamedTuple):
    """How dynamic inputs reach a recording: which are copied before a replay, and which the graph copies or reads itself."""

    stage: Stage  # copies the inputs of a call; returns what is to run after the replay, where the graph mutates inputs
    in_graph: tuple[int, ...]  # indices of inputs that the graph copies or reads itself
    is_done_by_graph: bool  # `stage` has nothing to do
    sources: list[torch.Tensor]  # inputs that the graph copies, as they are in the capture
    copied: int  # number of inputs that are copied in each replay
    nbytes: int  # of these inputs


def stage_inputs(inputs: list[Any], plan: GraphPlan, in_graph: tuple[int, ...]) -> StagedInputs:
    """Replace dynamic inputs in the list `inputs` by copies in the recording's memory; return how calls update the copies.

    Inputs that memcpy nodes of the graph copy, at the indices `in_graph`, are left as they are.
    """
    dynamic = plan.indices("dynamic")
    expanded = {index: dims for index in dynamic if (dims := _expanded_dims(inputs[index]))}
    by_hand = [index for index in dynamic if index not in in_graph]
    for index in by_hand:
        inputs[index] = own_copy(inputs[index])
    buffers = [_unexpanded(inputs[index], expanded.get(index, ())) for index in by_hand]
    mutated = [(index, inputs[index]) for index in plan.mutated if index in dynamic]
    nbytes = sum(_unexpanded(inputs[index], expanded.get(index, ())).nbytes for index in dynamic)
    stage = _stage(by_hand, buffers, expanded, mutated)
    sources = [inputs[index] for index in in_graph]
    return StagedInputs(stage, in_graph, not by_hand and not mutated, sources, len(dynamic), nbytes)


def read_in_place(dynamic: tuple[int, ...]) -> StagedInputs:
    """Return StagedInputs that copy nothing: before each replay, pointers to the inputs at the indices `dynamic` are set."""
    return StagedInputs(lambda args: None, dynamic, is_done_by_graph=True, sources=[], copied=0, nbytes=0)


def copyable_in_graph(args: Sequence[Any], plan: GraphPlan) -> tuple[int, ...]:
    """Return the indices of dynamic inputs that a memcpy node can copy: dense, not complex, of fixed sizes, and not mutated."""
    fixed = (index for index in plan.indices("dynamic") if plan.inputs[index].is_fixed)
    return tuple(index for index in fixed if is_plain(args[index]) and index not in plan.mutated)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a copy of a tensor's bytes has the same values: whether the tensor is dense and not complex.

    A complex tensor may have its conjugate bit set in one call and not in another.
    """
    return is_dense(tensor) and not tensor.is_complex()


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is not empty, and its elements cover all bytes from the first to the last exactly once."""
    return tensor.numel() > 0 and not _overlaps_itself(tensor) and extent(tensor) == tensor.numel()


def own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to new memory with the same strides, on which compiled kernels rely.

    A tensor that overlaps itself in another way than by `expand` gets other strides.
    """
    expanded = _expanded_dims(tensor)
    compact = _unexpanded(tensor, expanded)
    if _overlaps_itself(compact):
        return tensor.clone()
    copy = copy_of(compact)
    # detached: autograd forbids in-place changes of expanded views
    return copy.expand(tensor.size()).detach() if expanded else copy


def copier(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a function that copies this tensor as `own_copy` does, but reads the layout of a dense tensor only once."""
    if type(tensor) is not torch.Tensor or not is_dense(tensor):
        return partial(own_copy, tensor)
    allocate = allocator_like(tensor)
    return lambda: allocate().copy_(tensor)


def _expanded_dims(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions that were expanded, with stride 0; none if the tensor overlaps itself in other ways too."""
    dims = tuple(dim for dim, size in enumerate(tensor.size()) if size > 1 and tensor.stride(dim) == 0)
    return () if _overlaps_itself(_unexpanded(tensor, dims)) else dims


def _unexpanded(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    for dim in dims:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether elements may share memory: if a stride is less than the extent of the dimensions with smaller strides."""
    below = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1 and stride < below:
            return True
        below += max(0, size - 1) * stride
    return False


def _stage(
    indices: Sequence[int],
    buffers: list[torch.Tensor],
    expanded: Mapping[int, Sequence[int]],
    mutated: list[tuple[int, torch.Tensor]],
) -> Stage:
    """Return a function that copies a call's inputs to the recording's buffers, in as few operations as possible.

    If the graph mutates inputs, the returned function itself returns a function, to be called after the replay, that copies
    the mutated buffers back to the inputs.
    """

    def copy_none(args: Sequence[Any]) -> None:
        pass

    def copy_one(args: Sequence[Any]) -> None:
        buffers[0].copy_(args[indices[0]])

    def copy_all(args: Sequence[Any]) -> None:
        foreach.copy_all(buffers, [args[index] for index in indices])

    def copy_unexpanded(args: Sequence[Any]) -> None:
        foreach.copy_all(buffers, [_unexpanded(args[index], expanded.get(index, ())) for index in indices])

    copy = copy_none if not buffers else copy_unexpanded if expanded else copy_one if len(buffers) == 1 else copy_all

    def copy_there_and_back(args: Sequence[Any]) -> Callable[[], None]:
        copy(args)
        return partial(_copy_back, [(args[index], buffer) for index, buffer in mutated])

    return copy_there_and_back if mutated else copy


def _copy_back(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for arg, buffer in pairs:
        arg.copy_(buffer)
