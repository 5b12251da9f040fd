"""Twelve blocks are compiled one by one, but they differ only in their weights, so all share one compiled version."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        h = torch.relu(self.linear(x))
        return x + h * self.gain


torch.manual_seed(0)
blocks = nn.ModuleList(Block(4) for _ in range(12))
for block in blocks:
    block.compile(backend="eager")
x = torch.randn(2, 4)
with torch.no_grad():
    for block in blocks:
        x = block(x)
