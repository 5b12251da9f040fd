"""A graph break from a search for a fault is left in a helper."""

import torch


def scaled(x):
    y = x * 2
    torch._dynamo.graph_break()  # DX216
    return y


@torch.compile(backend="eager")
def step(x):
    return scaled(x) + 1


step(torch.ones(4))
