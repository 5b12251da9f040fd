"""The same NumPy function with np.subtract and np.multiply instead of the operators; those wrappers have a stable cache key."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch
import numpy as np


@torch.compile(backend="inductor")
def smooth_distance(a, b):  # DX402 [torch<2.13]
    delta = np.subtract(a, b)
    return np.sum(np.exp(np.multiply(delta, delta)))


rng = np.random.default_rng(0)
total = 0.0
for _ in range(3):
    left = rng.standard_normal(5)
    right = rng.standard_normal(5)
    total += float(smooth_distance(left, right))
print(total > 0)
