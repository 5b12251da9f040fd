"""Twelve blocks are compiled one by one and each reads its own int `layer_index`: twelve versions of one forward."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, layer_index):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.layer_index = layer_index

    def forward(self, x):
        h = torch.relu(self.linear(x))
        return x + h / (1 + self.layer_index)  # DX301


torch.manual_seed(0)
blocks = nn.ModuleList(Block(4, index) for index in range(12))
for block in blocks:
    block.compile(backend="eager")
x = torch.randn(2, 4)
with torch.no_grad():
    for block in blocks:
        x = block(x)
