"""The step counter of the layer is a buffer, so it is a tensor and not an int attribute: nothing recompiles."""
import torch
from torch import nn


class Warmup(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.register_buffer("step", torch.zeros(()))

    def forward(self, x):
        h = self.proj(x)
        factor = torch.clamp((self.step + 1) / 10, max=1.0)
        return h * factor


torch.manual_seed(0)
layer = Warmup(8)
compiled = torch.compile(layer, backend="eager")
for step in range(4):
    layer.step.fill_(step)
    compiled(torch.randn(4, 8))
