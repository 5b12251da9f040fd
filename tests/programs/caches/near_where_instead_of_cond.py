"""The choice is written with torch.where, an ordinary operator, and both caches store the graph."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch


def double(x):
    return x * 2


def negate(x):
    return -x


@torch.compile(backend="inductor")
def choose(x):
    shifted = x + 1
    return torch.where(shifted.sum() > 0, double(shifted), negate(shifted))


torch.manual_seed(0)
choose(torch.randn(4))
