"""The hidden state requires grad between two compiled functions."""

import torch


@torch.compile(backend="eager")
def hidden_of(x, weight):
    return x @ weight


@torch.compile(backend="eager")
def energy(hidden):
    return (hidden**2).sum()


for _ in range(2):
    hidden = hidden_of(torch.ones(2, 4), torch.ones(4, 3)).requires_grad_()
    energy(hidden).backward()
