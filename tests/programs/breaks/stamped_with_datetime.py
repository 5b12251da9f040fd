"""The time of a step is taken inside it."""

from datetime import datetime

import torch

times = []


@torch.compile(backend="eager")
def step(x):
    y = x * 2
    times.append(datetime.now())  # DX204
    return y + 1


step(torch.ones(4))
