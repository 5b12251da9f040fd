"""Noise is drawn from a generator of NumPy, and passed in as a tensor."""

import numpy as np
import torch

rng = np.random.default_rng(0)


@torch.compile(backend="eager")
def noisy(x, noise):
    return x + noise


for _ in range(3):
    noisy(torch.ones(4), torch.tensor(rng.normal()))
