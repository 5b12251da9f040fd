"""A module that is created in the compiled function has no parameters."""

import torch
from torch import nn


@torch.compile(backend="eager")
def activate(x):
    return nn.ReLU()(x * 2)


activate(torch.ones(4))
