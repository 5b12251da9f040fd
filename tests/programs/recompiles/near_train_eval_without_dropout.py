"""train() and eval() alternate, but nothing in this model reads the flag: no dropout, no batch norm."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.up(self.norm(x)))
        return x + self.down(h)


torch.manual_seed(0)
block = Block(8)
compiled = torch.compile(block, backend="eager")
for epoch in range(3):
    block.train()
    compiled(torch.randn(4, 8)).sum().backward()
    block.eval()
    compiled(torch.randn(4, 8)).sum().backward()
