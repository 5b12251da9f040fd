"""The time of a step is taken inside it.

Requires torch>=2.13: torch 2.11 raises an internal error, "Guard failed on the same frame it was created".
"""

from datetime import datetime

import torch

times = []


@torch.compile(backend="eager")
def step(x):
    y = x * 2
    times.append(datetime.now())  # DX204
    return y + 1


step(torch.ones(4))
