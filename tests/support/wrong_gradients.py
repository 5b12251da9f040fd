"""A function with a wrong gradient, to plant in a backend."""

import torch


class Doubled(torch.autograd.Function):
    """Returns its argument; its gradient is twice as large as it should be."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
