"""torch compiles built-in modules through one function of its own, which is guarded by their class."""

import torch

x = torch.ones(4)
for activation in (torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.GELU()):
    torch.compile(activation, backend="eager")(x)  # DX111
