"""The warm-up runs on the CPU, the requests on the device; `meta` stands for a GPU."""

import torch

device = torch.device("meta")


@torch.compile(backend="eager")
def predict(x):
    return x.relu() * 2  # DX118


predict(torch.ones(4))
for _ in range(3):
    predict(torch.ones(4, device=device))
