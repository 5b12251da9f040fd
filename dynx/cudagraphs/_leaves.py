"""Leaves of autograd in the place of parameters, while a function is captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


def leaf_of(parameter: torch.Tensor) -> torch.Tensor:
    """Give another leaf in the memory of a parameter.

    Autograd adds to `.grad` on the stream on which a parameter was first used: where results of an earlier call still hold on
    to that, a capture, which is on a stream of its own, would have to wait for it, and fails.
    """
    is_plain = type(parameter) is nn.Parameter and not parameter.__dict__
    return nn.Parameter(parameter.detach()) if is_plain and parameter.requires_grad else parameter


@contextmanager
def leaves_in(modules: Sequence[nn.Module]) -> Iterator[dict[torch.Tensor, torch.Tensor]]:
    """Have modules use other leaves for a while; gives these by their parameters."""
    places = [each._parameters for top in modules for each in top.modules()]
    before = [dict(each) for each in places]
    leaves = {each: leaf_of(each) for there in before for each in there.values() if each is not None}
    try:
        for place in places:
            place.update({name: leaves[each] for name, each in place.items() if each is not None})
        yield leaves
    finally:
        for place, there in zip(places, before, strict=True):
            place.update(there)
