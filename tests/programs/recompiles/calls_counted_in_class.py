"""The compiled function counts its own calls in a class attribute."""

import torch


class Stats:
    calls = 0


@torch.compile(backend="eager")
def step(x):
    Stats.calls += 1  # DX114 [torch>=2.13], DX204 [torch<2.13]
    return x * Stats.calls


for _ in range(4):
    step(torch.ones(4))
