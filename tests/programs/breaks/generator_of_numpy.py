"""Noise is drawn from a generator of NumPy."""

import numpy as np
import torch

rng = np.random.default_rng(0)


@torch.compile(backend="eager")
def noisy(x):
    return x + rng.normal()  # DX211


noisy(torch.ones(4))
