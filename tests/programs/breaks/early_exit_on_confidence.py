"""The network leaves early when the first head is confident enough: a Python `if` on a tensor in forward()."""
import torch
from torch import nn


class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.small = nn.Linear(6, 3)
        self.large = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x):
        quick = self.small(x).softmax(-1)
        confident = quick.max() > 0.9
        if not confident:  # DX203
            quick = self.large(x).softmax(-1)
        return quick.log()


torch.manual_seed(0)
model = torch.compile(EarlyExit(), backend="eager")
model(torch.randn(2, 6))
