"""A submodule is replaced by one of another class after the first call."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(x) * 2  # DX120


block = Block()
compiled = torch.compile(block, backend="eager")
compiled(torch.ones(4))
block.act = nn.Tanh()
compiled(torch.ones(4))
