"""One of the calls runs under autocast, the others do not."""
import torch
from torch import nn

torch.manual_seed(0)
net = torch.compile(nn.Linear(5, 5), backend="eager")
batch = torch.randn(2, 5)
reference = net(batch)
with torch.autocast("cpu", dtype=torch.bfloat16):
    fast = net(batch)  # DX109
error = (reference - fast).abs().max()
