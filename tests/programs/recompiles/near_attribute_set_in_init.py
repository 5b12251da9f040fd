"""`hasattr` has the same result on every call."""

import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.cos = torch.arange(4.0).cos()

    def forward(self, x):
        if not hasattr(self, "cos"):
            self.cos = torch.arange(4.0).cos()
        return x * self.cos


model = torch.compile(Rotary(), backend="eager")
for _ in range(3):
    model(torch.ones(4))
