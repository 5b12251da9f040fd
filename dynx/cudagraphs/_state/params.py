"""Other tensors in the place of parameters and buffers, while a function is captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def leaf_of(parameter: torch.Tensor) -> torch.Tensor:
    """Give another leaf of autograd in the memory of a parameter.

    Autograd adds to `.grad` on the stream on which a parameter was first used: where results of an earlier call still hold on
    to that, a capture, which is on a stream of its own, would have to wait for it, and fails.
    """
    return nn.Parameter(parameter.detach()) if may_be_replaced(parameter) else parameter


def may_be_replaced(parameter: torch.Tensor) -> bool:
    """Tell whether nobody sees a difference: another class, or attributes, may be asked for."""
    return type(parameter) is nn.Parameter and not parameter.__dict__ and parameter.requires_grad


@contextmanager
def leaves_in(modules: Sequence[nn.Module]) -> Iterator[dict[torch.Tensor, torch.Tensor]]:
    """Have modules use other leaves for a while; gives these by their parameters."""
    leaves = {each: leaf_of(each) for module in modules for each in module.parameters()}
    with replaced_in(modules, leaves):
        yield leaves


def tensors_of(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    """Give the parameters and buffers of modules, each once."""
    return list(dict.fromkeys(each for module in modules for each in (*module.parameters(), *module.buffers())))


@contextmanager
def replaced_in(modules: Sequence[nn.Module], others: Mapping[torch.Tensor, torch.Tensor]) -> Iterator[None]:
    """Have modules use other parameters and buffers for a while."""
    inner = [each for top in modules for each in top.modules()]
    places: list[dict[str, Any]] = [each for module in inner for each in (module._parameters, module._buffers)]
    replaced = [(place, name, each) for place in places for name, each in place.items() if each in others]
    try:
        for place, name, each in replaced:
            place[name] = others[each]
        yield
    finally:
        for place, name, each in replaced:
            if place.get(name) is others[each]:  # or the function has put something else there
                place[name] = each
