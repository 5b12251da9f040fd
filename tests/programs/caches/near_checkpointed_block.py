"""Plain activation checkpointing in a compiled block is supported by both caches."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch

from torch.utils.checkpoint import checkpoint


def block(x, w):
    return torch.sigmoid(x @ w) @ w


@torch.compile(backend="inductor")
def forward(x, w):
    return checkpoint(block, x, w, use_reentrant=False).sum()


torch.manual_seed(0)
forward(torch.randn(2, 4), torch.randn(4, 4, requires_grad=True)).backward()
