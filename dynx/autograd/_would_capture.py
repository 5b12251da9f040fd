"""Predict whether a backward pass would be captured: compare it with the captures of a log, without running it."""

from __future__ import annotations

from collections.abc import Sequence

from dynx._torch.autograd.captures import RawCapture
from dynx.autograd._differences import Difference, at_node, is_certain


def first_differences(new: RawCapture, old: RawCapture) -> tuple[list[Difference], list[Difference]]:
    """Return what differs between a pass and a capture: what is certain to be in torch's key, and the rest."""
    certain: list[Difference] = []
    doubtful: list[Difference] = []
    for number in range(max(len(new.nodes), len(old.nodes)) + 1):
        for found in at_node(old, {}, new, {}, number):
            (certain if is_certain(found) else doubtful).append(found)
            if found.kind == "structure" and found.subject == "node":
                return certain, doubtful  # from here on, other nodes are compared
    return certain, doubtful


def fewest(found: Sequence[tuple[list[Difference], list[Difference]]]) -> tuple[list[Difference], list[Difference]]:
    """Return the differences from the most similar capture; one without certain differences is most similar."""
    return min(found, key=lambda each: (len(each[0]), len(each[1])))
