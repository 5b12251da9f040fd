"""Which modules hold parameters, for a loss that reaches them by a way that its code does not show."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch
from torch import nn


def owners_of(parameters: Sequence[torch.Tensor]) -> list[nn.Module]:
    """Find modules that together hold these parameters: those that hold the most of them, and of these the largest: layers
    beside them have a say too.
    """
    missing = {id(each) for each in parameters}
    if not missing:
        return []
    holding = [(each, held) for each in _modules() if (held := _held_by(each) & missing)]
    found = []
    while missing:
        owner, held = max(holding, key=lambda each: (len(each[1] & missing), _size(each[0])), default=(None, set[int]()))
        if owner is None or not held & missing:
            break  # of no module
        found.append(owner)
        missing -= held
    return found


def _modules() -> list[nn.Module]:
    return [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]


def _held_by(module: nn.Module) -> set[int]:
    try:
        return {id(one) for one in nn.Module.parameters(module)}
    except (AttributeError, TypeError):  # it was never finished
        return set()


def _size(module: nn.Module) -> int:
    return sum(1 for _ in module.modules())
