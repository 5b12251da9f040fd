"""A deprecated option makes the compiled function call warnings.warn."""
import warnings

import torch

warnings.simplefilter("ignore")


@torch.compile(backend="eager")
def normalize(x, eps=None):
    centered = x - x.mean()
    if eps is None:
        warnings.warn("pass eps explicitly")  # DX201
        eps = 1e-5
    return centered / (x.std() + eps)


torch.manual_seed(0)
normalize(torch.randn(6))
