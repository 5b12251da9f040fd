"""A warm-up layer keeps its step as a Python int on the module; every change of it costs a recompile."""
import torch
from torch import nn


class Warmup(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.step = 0

    def forward(self, x):
        h = self.proj(x)
        factor = min(1.0, (self.step + 1) / 10)  # DX101
        return h * factor


torch.manual_seed(0)
layer = Warmup(8)
compiled = torch.compile(layer, backend="eager")
for step in range(4):
    layer.step = step
    compiled(torch.randn(4, 8))
