"""One uncompiled call creates the weights of a lazy module."""

import torch

model = torch.nn.LazyLinear(2)
model(torch.ones(1, 4))
compiled = torch.compile(model, backend="eager")
compiled(torch.ones(1, 4))
