"""The model is copied in the compiled function."""

import copy

import torch

model = torch.nn.Linear(4, 4)


@torch.compile(backend="eager")
def target(x):
    frozen = copy.deepcopy(model)  # DX215
    return frozen(x * 2)


target(torch.ones(4))
