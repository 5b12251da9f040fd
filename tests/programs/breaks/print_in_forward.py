"""A forgotten debug print sits in the forward of a submodule of the compiled model."""
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        h = torch.relu(self.linear(x))
        print("hidden shape", tuple(h.shape))  # DX201
        return x + h


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 8)
        self.block = Residual(8)

    def forward(self, x):
        return self.block(self.stem(x))


torch.manual_seed(0)
net = torch.compile(Net(), backend="eager")
net(torch.randn(2, 3))
