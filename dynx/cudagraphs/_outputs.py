"""How the results of a replay are handed out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx._torch import foreach
from dynx.records.cudagraphs import GraphPlan


def handing_out(outputs: Sequence[Any], plan: GraphPlan, how: str) -> tuple[Callable[[], list[Any]], int | None]:
    """Give what makes the list of results after a replay, and the index of one that is saved for the backward pass.

    What is saved stays where it is. Gradients are always copied: autograd keeps the first as it is given, and adds to it.
    """
    how = "clone" if plan.part == "backward" else how
    tensors = [index for index, each in enumerate(outputs) if isinstance(each, torch.Tensor)]
    copied = [index for index in tensors if how == "clone" and index < plan.user_outputs]
    aliased = [index for index in tensors if index not in copied and (how != "static" or index >= plan.user_outputs)]
    together = [index for index in copied if outputs[index].is_floating_point()]
    if len(together) < 2:
        together = []
    alone = [index for index in copied if index not in together]
    sources = [outputs[index] for index in together]

    def hand_out() -> list[Any]:
        given = list(outputs)
        if sources:
            for index, copy in zip(together, foreach.copies_of(sources), strict=True):  # one call for all of them
                given[index] = copy
        for index in alone:
            given[index] = outputs[index].clone()
        for index in aliased:
            given[index] = outputs[index].detach()
        return given

    return hand_out, next((index for index in tensors if index >= plan.user_outputs), None)
