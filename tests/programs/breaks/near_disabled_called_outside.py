"""The disabled function and torch.manual_seed are used between the compiled calls, never from inside one."""
import torch
from torch import nn


@torch.compiler.disable
def record(stats, value):
    stats.append(float(value.detach().mean()))


model = nn.Sequential(nn.Linear(5, 5), nn.Sigmoid())
forward = torch.compile(model, backend="eager")
stats = []
for seed in range(3):
    torch.manual_seed(seed)
    output = forward(torch.randn(2, 5))
    record(stats, output)
