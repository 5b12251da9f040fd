"""What a published optimizer is, and the few lines that many of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Published:
    """An optimizer as people publish it: how it is made, and the counts whose final values are those of eager training.

    `make` returns the optimizer and what runs after each training step, outside of it. A count is a dotted path from the
    optimizer, which `count_at` reads: attributes, keys, indices. It leads to a number, a flag, a text, a list of numbers, or a
    tensor of one element.
    """

    name: str
    make: Callable[[list[nn.Parameter]], tuple[Any, Callable[[], Any]]]
    counts: tuple[str, ...] = ()


def count_at(optimizer, path):
    """Return the value at a dotted path of attributes, keys of mappings, and indices."""
    value = optimizer
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


def nothing():
    """Do nothing after a step."""


def plain(build):
    """Return a `make` of an optimizer beside which nothing runs."""
    return lambda params: (build(params), nothing)


def each_step(change):
    """Return what calls `change` with the number of the step that is over: 1, 2, ..."""
    done = 0

    def after():
        nonlocal done
        done += 1
        change(done)

    return after


def with_grads(group):
    """Return the parameters of a group that have gradients."""
    return [p for p in group["params"] if p.grad is not None]


@torch.no_grad()
def descend(optimizer, factor=1.0):
    """Subtract each gradient times the learning rate of its group times `factor`, a number or a tensor."""
    for group in optimizer.param_groups:
        for p in with_grads(group):
            p.sub_(p.grad * (group["lr"] * factor))


def decayed(t):
    """Return a factor that falls with the number of steps."""
    return 1.0 / (1.0 + 0.2 * t)


def sgd(params, lr=0.1, momentum=0.9):
    """Return torch's SGD with momentum."""
    return torch.optim.SGD(params, lr=lr, momentum=momentum)


def adamw(params, lr=0.02, **options):
    """Return torch's AdamW, which keeps its steps on the device where that is a GPU."""
    return torch.optim.AdamW(params, lr=lr, capturable=params[0].is_cuda, **options)


def moments(state, p, *names):
    """Return the tensors of a parameter's state under these names, made as zeros the first time."""
    for name in names:
        if name not in state:
            state[name] = torch.zeros_like(p)
    return [state[name] for name in names]
