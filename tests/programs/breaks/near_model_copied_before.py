"""The model is copied before it is compiled."""

import copy

import torch

model = torch.nn.Linear(4, 4)
target = torch.compile(copy.deepcopy(model), backend="eager")
target(torch.ones(4))
