"""Small models with the same weights on every call."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


def linear(device, outputs=3):
    """Return a layer from 3 features to `outputs`."""
    torch.manual_seed(0)
    return nn.Linear(3, outputs).to(device)


def mlp(device, *widths):
    """Return linear layers of these widths with a GELU after each but the last."""
    torch.manual_seed(0)
    layers = [layer for inputs, outputs in pairwise(widths) for layer in (nn.Linear(inputs, outputs), nn.GELU())]
    return nn.Sequential(*layers[:-1]).to(device)


def batch_norm_mlp(device, dropout=0.0):
    """Return a model from 4 features to 2 with running statistics and, where asked for, random numbers."""
    torch.manual_seed(0)
    layers = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2)
    return nn.Sequential(*layers).to(device)


class Net(nn.Module):
    """A layer whose result is multiplied by a number."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, scale=1):
        return self.linear(x) * scale
