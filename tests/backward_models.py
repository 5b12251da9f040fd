"""Random small training steps with hooks of every kind, for compiled autograd."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Slices(nn.Module):
    def forward(self, t):
        t = t.clone()
        t[:, 1:3].mul_(2.0)
        return t


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, t):
        return t + self.linear(self.norm(t))


class Checkpointed(nn.Module):
    def __init__(self, width, reentrant):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(nn.Linear(width, width), nn.Tanh()), reentrant

    def forward(self, t):
        return checkpoint(self.inner, t, use_reentrant=self.reentrant)


class Model(nn.Module):
    """Layers that `choice` picks; some share their parameters."""

    def __init__(self, choice: random.Random, width: int = 6) -> None:
        super().__init__()
        makers: list[Callable[[], nn.Module]] = [
            lambda: nn.Linear(width, width),
            lambda: nn.Linear(width, width, bias=False),
            nn.ReLU,
            nn.GELU,
            Slices,
            lambda: Residual(width),
            lambda: nn.LayerNorm(width),
            lambda: Checkpointed(width, False),
        ]
        self.layers = nn.ModuleList(choice.choice(makers)() for _ in range(choice.randint(2, 5)))
        self.layers.append(nn.Linear(width, width))
        if choice.random() < 0.3:
            self.layers.append(self.layers[0])
        self.custom = choice.random() < 0.3

    def forward(self, t):
        for layer in self.layers:
            t = layer(t)
        return Double.apply(t) if self.custom else t


def add_hooks(model: nn.Module, choice: random.Random, log: list[str]) -> None:
    """Register hooks on parameters, and on the nodes that accumulate their gradients; `log` gets their names when they run."""
    for name, parameter in model.named_parameters():
        if choice.random() < 0.3:
            parameter.register_hook(lambda g, name=name: log.append(f"tensor {name}"))
        if choice.random() < 0.3:
            for number in range(choice.randint(1, 2)):
                parameter.register_post_accumulate_grad_hook(
                    lambda p, name=name, number=number: log.append(f"post-accumulate {name} {number}")
                )


def loss_of(model: nn.Module, choice: random.Random, t: torch.Tensor, log: list[str]) -> torch.Tensor:
    """Run the model; register hooks on its result and on nodes of the autograd graph."""
    if choice.random() < 0.2:
        with torch.autograd.graph.saved_tensors_hooks(lambda each: each * 1, lambda each: each):
            y = model(t)
    else:
        y = model(t)
    if choice.random() < 0.3:
        y.retain_grad()
    if choice.random() < 0.4:
        y.register_hook(lambda g: log.append("tensor y"))
    if choice.random() < 0.4:
        y.grad_fn.register_hook(lambda inputs, outputs: log.append("post y"))
    if choice.random() < 0.4:
        y.grad_fn.register_prehook(lambda outputs: log.append("pre y"))
    loss = (y * y).mean() + y.sin().sum() if choice.random() < 0.5 else y.pow(2).sum()
    leaves = [node for node, _ in y.grad_fn.next_functions if node is not None and node.name().endswith("AccumulateGrad")]
    for leaf in leaves:
        if choice.random() < 0.5:
            leaf.register_hook(lambda inputs, outputs: log.append("post leaf"))
        if choice.random() < 0.5:
            leaf.register_prehook(lambda outputs: log.append("pre leaf"))
    return loss
