"""The number of refinements is a tensor."""

import torch


@torch.compile(backend="eager")
def refine(x, steps):
    for _ in range(int(steps)):  # DX202
        x = x * 0.5 + 1
    return x


refine(torch.ones(4), torch.tensor(2))
