"""The score is compiled, its gradient is computed outside."""

import torch


@torch.compile(backend="eager")
def score(x):
    return x.square().sum()


x = torch.ones(4, requires_grad=True)
(gradient,) = torch.autograd.grad(score(x), x)
