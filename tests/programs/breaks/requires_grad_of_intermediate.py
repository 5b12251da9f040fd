"""Gradients of a hidden state are wanted, so the function asks for them where it is computed."""

import torch


@torch.compile(backend="eager")
def energy(x, weight):
    hidden = x @ weight
    hidden.requires_grad_()  # DX208
    return (hidden**2).sum()


for _ in range(2):
    energy(torch.ones(2, 4), torch.ones(4, 3)).backward()
