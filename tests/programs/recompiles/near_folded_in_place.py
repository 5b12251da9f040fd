"""Folding the weights writes into the parameter, which stays a parameter."""

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight


model = Scale()
compiled = torch.compile(model, backend="eager")
compiled(torch.ones(4))
with torch.no_grad():
    model.weight.mul_(2)
compiled(torch.ones(4))
