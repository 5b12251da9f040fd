"""A single sample has one dim fewer than a batch."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


@torch.compile(backend="eager")
def predict(x):
    return model(x) * 2  # DX119


predict(torch.ones(8, 4))
predict(torch.ones(4))
predict(torch.ones(2, 8, 4))
