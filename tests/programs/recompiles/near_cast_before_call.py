"""The arrays have different dtypes, but they are cast to float32 in eager code before the compiled call."""
import numpy as np
import torch


def standardize(features):
    centered = features - features.mean(dim=0)
    return centered / (centered.std(dim=0) + 1e-6)


compiled = torch.compile(standardize, backend="eager")
rng = np.random.default_rng(0)
for dtype in ("float32", "float64", "int64"):
    array = rng.normal(size=(6, 3), scale=9).astype(dtype)
    compiled(torch.from_numpy(array).to(torch.float32))
