"""print and warnings.warn stand in the compiled code, but behind is_compiling(), so the tracer never gets to them."""
import warnings

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if not torch.compiler.is_compiling():
                print("layer", number, x.norm().item())
                warnings.warn("slow path")
        return x


torch.manual_seed(0)
encoder = torch.compile(Encoder(), backend="eager")
encoder(torch.randn(2, 4))
