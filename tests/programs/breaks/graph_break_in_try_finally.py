"""A hand-made graph break stands in try/finally, where torch cannot resume, and takes the whole function with it."""
import torch
from torch import nn


class Guarded(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.depth = 0.5

    def forward(self, x):
        h = self.linear(x)
        try:
            h = h * self.depth
            torch._dynamo.graph_break()  # DX206
        finally:
            h = h + 1
        return h


torch.manual_seed(0)
torch.compile(Guarded(), backend="eager")(torch.randn(2, 4))
