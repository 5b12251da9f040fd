"""torch.cond is a higher-order operator that the caches do not support."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


def double(x):
    return x * 2


def negate(x):
    return -x


@torch.compile(backend="inductor")
def choose(x):  # DX401
    shifted = x + 1
    return torch.cond(shifted.sum() > 0, double, negate, (shifted,))


torch.manual_seed(0)
choose(torch.randn(4))
