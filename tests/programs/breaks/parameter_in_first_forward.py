"""The weight gets its size from the first input."""

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = None

    def forward(self, x):
        if self.weight is None:
            self.weight = nn.Parameter(torch.zeros(x.size(-1)))  # DX213
        return x * self.weight


model = torch.compile(Scale(), backend="eager")
model(torch.ones(4))
