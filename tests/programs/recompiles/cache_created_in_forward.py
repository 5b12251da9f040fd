"""The first call creates the attribute that `hasattr` looks for."""

import torch
from torch import nn


class Rotary(nn.Module):
    def forward(self, x):
        if not hasattr(self, "cos"):  # DX121
            self.cos = torch.arange(4.0).cos()
        return x * self.cos


model = torch.compile(Rotary(), backend="eager")
for _ in range(3):
    model(torch.ones(4))
