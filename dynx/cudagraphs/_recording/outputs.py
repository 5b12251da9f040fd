"""How the results of a replay are handed out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx._torch.ops import foreach
from dynx.cudagraphs._recording.inputs import is_dense, own_copy
from dynx.cudagraphs._recording.overlapping_outputs import copying, sharing
from dynx.cudagraphs._recording.stale_outputs import handing_out
from dynx.cudagraphs._runtime.interface import Captured
from dynx.records.cudagraphs import GraphPlan

Fresh = Sequence[torch.Tensor]


class Results:
    """The results of one recording; the first `user_outputs` of its plan are for the user, others stay where they are.

    Gradients are always copied: autograd keeps the first as it is given, and adds to it.
    What AOTAutograd reads the layout of only is no copy, which would lie elsewhere in its memory.
    Copies are made by the graph itself, up to `few` of them, or by hand. They are made apart for autograd, which would not know
    that what is written to one of them changes others.
    """

    def __init__(self, plan: GraphPlan, how: str, *, few: int) -> None:
        self._plan, self._few = plan, few
        # autograd puts its graph on what it is given, so a forward pass gives no tensors of the recording itself
        self._how = "clone" if plan.part == "backward" else "alias" if (plan.part, how) == ("forward", "static") else how

    def in_graph(self, outputs: Sequence[Any]) -> list[torch.Tensor]:
        """Give the results that the graph copies to where it is told before each replay."""
        return [outputs[index] for index in self._in_graph(outputs)]

    def _in_graph(self, outputs: Sequence[Any]) -> list[int]:
        grouped = {index for each in self._grouped(outputs) for index in each}
        copied = [index for index in self._copied(outputs) if index not in grouped]
        return copied if len(copied) <= self._few and all(is_dense(outputs[index]) for index in copied) else []

    def _copied(self, outputs: Sequence[Any]) -> list[int]:
        return [
            index
            for index in _tensors(outputs)
            if self._how == "clone" and index < self._plan.user_outputs and index not in self._plan.regenerated
        ]

    def _grouped(self, outputs: Sequence[Any]) -> list[list[int]]:
        is_apart = self._plan.is_differentiated or self._plan.part in ("forward", "backward")
        return [] if is_apart else sharing(outputs, self._copied(outputs))

    def token(self, outputs: Sequence[Any]) -> int | None:
        """Give the index of one that is saved for the backward pass."""
        if self._plan.part != "forward":
            return None
        return next((index for index in _tensors(outputs) if index >= self._plan.user_outputs), None)

    def handing_out(self, captured: Captured) -> tuple[Callable[[], Fresh], Callable[[Fresh], list[Any]]]:
        """Give what is to be done before a replay, and what makes the list of results after it."""
        outputs = captured.outputs if self._plan.are_all_handed_out else captured.outputs[: self._plan.user_outputs]
        in_graph, copied = self._in_graph(outputs), self._copied(outputs)
        by_hand = [index for index in copied if index not in in_graph]
        token = self.token(outputs)  # of what is saved, one new tensor is enough to see how long it is needed
        shown = [index for index in _tensors(outputs) if index < self._plan.user_outputs or index == token]
        aliased = [index for index in shown if index not in copied and not self._is_static(index)]
        told = [index for index in aliased if index != token or index < self._plan.user_outputs]
        prepare = _preparing(captured, [outputs[index] for index in in_graph]) if in_graph else tuple
        quiet = [each for each in aliased if each not in told]
        return prepare, _handing_out(list(outputs), in_graph, by_hand, self._grouped(outputs), quiet, told)

    def _is_static(self, index: int) -> bool:
        return index in self._plan.regenerated or (self._how == "static" and index < self._plan.user_outputs)


def _tensors(outputs: Sequence[Any]) -> list[int]:
    return [index for index, each in enumerate(outputs) if isinstance(each, torch.Tensor)]


def _preparing(captured: Captured, outputs: list[torch.Tensor]) -> Callable[[], Fresh]:
    set_targets, like = captured.set_targets, torch.empty_like

    def prepare_one() -> Fresh:
        set_targets(fresh := (like(outputs[0]),))
        return fresh

    def prepare() -> Fresh:
        set_targets(fresh := [like(each) for each in outputs])
        return fresh

    return prepare_one if len(outputs) == 1 else prepare


def _handing_out(
    outputs: list[Any],
    in_graph: list[int],
    by_hand: list[int],
    grouped: list[list[int]],
    aliased: list[int],
    told: list[int],
) -> Callable[[Fresh], list[Any]]:
    groups = [(each, copying([outputs[index] for index in each])) for each in grouped]
    single = [index for index in by_hand if not any(index in each for each in grouped)]
    together = [index for index in single if outputs[index].is_floating_point() and is_dense(outputs[index])]
    if len(together) < 2:
        together = []
    alone = [index for index in single if index not in together]
    sources = [outputs[index] for index in together]
    aliases_of = handing_out([outputs[index] for index in told])

    def hand_out(fresh: Fresh) -> list[Any]:
        given = outputs.copy()
        for index, each in zip(in_graph, fresh, strict=True):
            given[index] = each
        if sources:
            for index, copy in zip(together, foreach.copies_of(sources), strict=True):  # one call for all of them
                given[index] = copy
        for indices, copies_of in groups:
            for index, each in zip(indices, copies_of(), strict=True):
                given[index] = each
        for index in alone:
            given[index] = own_copy(outputs[index])
        for index in aliased:
            given[index] = outputs[index].detach()
        if told:
            for index, alias in zip(told, aliases_of(), strict=True):
                given[index] = alias
        return given

    def hand_out_aliases(fresh: Fresh) -> list[Any]:
        return aliases_of()

    def hand_out_fresh(fresh: Fresh) -> list[Any]:
        return list(fresh)

    def hand_out_static(fresh: Fresh) -> list[Any]:
        return outputs.copy()

    if told == list(range(len(outputs))):
        return hand_out_aliases
    if by_hand or aliased or told:
        return hand_out
    return hand_out_fresh if in_graph == list(range(len(outputs))) else hand_out if in_graph else hand_out_static
