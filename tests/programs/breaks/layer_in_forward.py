"""A layer is created in every call."""

import torch
from torch import nn


@torch.compile(backend="eager")
def project(x):
    layer = nn.Linear(4, 2)  # DX213
    return layer(x * 2)


project(torch.ones(4))
