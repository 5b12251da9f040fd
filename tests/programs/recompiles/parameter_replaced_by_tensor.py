"""Folding the weights deletes a parameter and sets a plain attribute of the same name."""

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight  # DX121


model = Scale()
compiled = torch.compile(model, backend="eager")
compiled(torch.ones(4))
folded = model.weight.detach() * 2
del model.weight
model.weight = folded
compiled(torch.ones(4))
