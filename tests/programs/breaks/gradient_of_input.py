"""The gradient with respect to the input is computed in the compiled function."""

import torch


@torch.compile(backend="eager")
def saliency(x):
    score = x.square().sum()
    (gradient,) = torch.autograd.grad(score, x)  # DX212
    return gradient.abs()


saliency(torch.ones(4, requires_grad=True))
