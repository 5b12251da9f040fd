"""Build the results of a replay: clones, aliases, or the recording's own tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx._torch.ops import foreach
from dynx._torch.ops.allocation import allocator_like
from dynx.cudagraphs._recording.inputs import copier, is_dense
from dynx.cudagraphs._recording.overlapping_outputs import group_cloner, overlapping_groups
from dynx.cudagraphs._recording.staging import FEW, OutputKind
from dynx.cudagraphs._recording.stale_outputs import alias_maker
from dynx.cudagraphs._runtime.interface import CapturedGraph
from dynx.records.cudagraphs import GraphPlan

Clones = Sequence[torch.Tensor]  # memory for the results that the graph clones itself


class Results:
    """How each result of a recording is returned: as a clone, as an alias, or as the recording's own tensor.

    The first `user_outputs` results of a plan are the user's; further results stay in the recording's memory. Outputs that
    AOTAutograd regenerates as views of other tensors are never cloned: it reads their layout, storage offset included, which
    a clone would change.

    Up to four dense results are cloned by memcpy nodes of the graph; if there are more, or some are not dense, all are cloned
    after the replay. Results in pinned memory and overlapping results are always cloned after the replay. Clones of
    overlapping results overlap too, unless autograd tracks them: it would not know that a write to one clone changes another.
    """

    def __init__(self, plan: GraphPlan, kind: OutputKind, *, clones_in_graph: bool) -> None:
        self._plan, self._kind, self._limit = plan, kind, FEW if clones_in_graph else 0

    def in_graph(self, outputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the tensors in `outputs` that memcpy nodes of the graph clone, to addresses set before each replay."""
        return [outputs[index] for index in self._in_graph(outputs)]

    def _in_graph(self, outputs: Sequence[Any]) -> list[int]:
        grouped = {index for group in self._grouped(outputs) for index in group}
        single = [index for index in self._cloned(outputs) if index not in grouped and not is_pinned(outputs[index])]
        return single if len(single) <= self._limit and all(is_dense(outputs[index]) for index in single) else []

    def _cloned(self, outputs: Sequence[Any]) -> list[int]:
        return [
            index
            for index in _tensors(outputs)
            if self._kind == "clone" and index < self._plan.user_outputs and index not in self._plan.regenerated
        ]

    def _grouped(self, outputs: Sequence[Any]) -> list[list[int]]:
        is_for_autograd = self._plan.is_differentiated or self._plan.part in ("forward", "backward")
        return [] if is_for_autograd else overlapping_groups(outputs, self._cloned(outputs))

    def token(self, outputs: Sequence[Any]) -> int | None:
        """Return the index of the first result that is saved for the backward pass; None if there is none.

        While this tensor is alive, a backward pass may still read the recording's memory.
        """
        if self._plan.part != "forward":
            return None
        return next((index for index in _tensors(outputs) if index >= self._plan.user_outputs), None)

    def before_and_after(self, captured: CapturedGraph) -> tuple[Callable[[], Clones], Callable[[Clones], list[Any]]]:
        """Return a function that allocates memory for clones before a replay, and one that returns the results after it."""
        outputs = captured.outputs if self._plan.returns_all_outputs else captured.outputs[: self._plan.user_outputs]
        in_graph, cloned = self._in_graph(outputs), self._cloned(outputs)
        by_hand = [index for index in cloned if index not in in_graph]
        token = self.token(outputs)  # of all saved tensors, one new alias is enough to see how long they are needed
        returned = [index for index in _tensors(outputs) if index < self._plan.user_outputs or index == token]
        aliased = [index for index in returned if index not in cloned and not self._is_static(index)]
        guarded = [index for index in aliased if index < self._plan.user_outputs]
        unguarded = [index for index in aliased if index not in guarded]
        before = _clone_allocator(captured, [outputs[index] for index in in_graph]) if in_graph else tuple
        return before, _result_maker(list(outputs), in_graph, by_hand, self._grouped(outputs), unguarded, guarded)

    def _is_static(self, index: int) -> bool:
        return index in self._plan.regenerated or (self._kind == "static" and index < self._plan.user_outputs)


def _tensors(outputs: Sequence[Any]) -> list[int]:
    return [index for index, output in enumerate(outputs) if isinstance(output, torch.Tensor)]


def is_pinned(output: torch.Tensor) -> bool:
    """Return whether a result is in pinned CPU memory, to which the graph copies it from the device."""
    return output.is_cpu and output.is_pinned()


def pinned_copier(output: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a function that waits until the graph has copied a result to pinned memory, and clones it to new pinned memory.

    The next replay writes to the memory of the graph, perhaps while the CPU still reads it.
    """

    def copy() -> torch.Tensor:
        torch.cuda.current_stream().synchronize()
        return torch.empty_like(output, pin_memory=True).copy_(output)

    return copy


def _clone_allocator(captured: CapturedGraph, outputs: list[torch.Tensor]) -> Callable[[], Clones]:
    """Return a function that allocates memory for the clones that the graph makes, and sets the graph's pointers to it."""
    set_targets, allocators = captured.set_targets, list(map(allocator_like, outputs))
    allocate_first = allocators[0]

    def allocate_one() -> Clones:
        set_targets(clones := (allocate_first(),))
        return clones

    def allocate() -> Clones:
        set_targets(clones := [allocate_like() for allocate_like in allocators])
        return clones

    return allocate_one if len(outputs) == 1 else allocate


def _result_maker(
    outputs: list[Any],
    in_graph: list[int],
    by_hand: list[int],
    grouped: list[list[int]],
    unguarded: list[int],
    guarded: list[int],
) -> Callable[[Clones], list[Any]]:
    """Return a function that takes the clones that the graph made, and returns the list of results of a replay.

    `outputs` are the recording's own results, the other arguments are indices of these. The graph clones `in_graph`. Torch
    clones `by_hand` after a replay; the clones of a group in `grouped` share memory. `guarded` and `unguarded` are returned as
    aliases; guarded aliases raise if they are used after the next call.
    """
    cloners = [(group, group_cloner([outputs[index] for index in group])) for group in grouped]
    single = [index for index in by_hand if not any(index in group for group in grouped)]
    together = [
        index
        for index in single
        if outputs[index].is_floating_point() and is_dense(outputs[index]) and not is_pinned(outputs[index])
    ]
    if len(together) < 2:
        together = []
    one_by_one = [
        (index, pinned_copier(outputs[index]) if is_pinned(outputs[index]) else copier(outputs[index]))
        for index in single
        if index not in together
    ]
    sources = [outputs[index] for index in together]
    new_aliases = alias_maker([outputs[index] for index in guarded])

    def make_results(clones: Clones) -> list[Any]:
        results = outputs.copy()
        for index, clone in zip(in_graph, clones, strict=True):
            results[index] = clone
        if sources:
            for index, clone in zip(together, foreach.copies_of(sources), strict=True):  # one call for all of them
                results[index] = clone
        for group, clone_group in cloners:
            for index, clone in zip(group, clone_group(), strict=True):
                results[index] = clone
        for index, copy in one_by_one:
            results[index] = copy()
        for index in unguarded:
            results[index] = outputs[index].detach()
        if guarded:
            for index, alias in zip(guarded, new_aliases(), strict=True):
                results[index] = alias
        return results

    def only_aliases(clones: Clones) -> list[Any]:
        return new_aliases()

    def only_static(clones: Clones) -> list[Any]:
        return outputs.copy()

    if guarded == list(range(len(outputs))):
        return only_aliases
    if by_hand or unguarded or guarded:
        return make_results
    return list if in_graph == list(range(len(outputs))) else make_results if in_graph else only_static
