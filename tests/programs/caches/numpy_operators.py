"""A user compiled a NumPy function that uses the array operators - and *; torch wraps them in objects that AOTAutograd cannot cache."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch
import numpy as np


@torch.compile(backend="inductor")
def smooth_distance(a, b):  # DX402
    delta = a - b
    return np.sum(np.exp(delta * delta))


rng = np.random.default_rng(0)
total = 0.0
for _ in range(3):
    left = rng.standard_normal(5)
    right = rng.standard_normal(5)
    total += float(smooth_distance(left, right))
print(total > 0)
