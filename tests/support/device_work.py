"""Functions that replay CUDA graphs, and who else uses the memory of the device meanwhile."""

from __future__ import annotations

import torch
from torch import nn

from dynx import cudagraphs

CYCLES = 200_000_000  # of `torch.cuda._sleep`: about a tenth of a second


def randn(*shape, seed=0, device="cuda"):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def fast_path(fn, *examples, **options):
    return cudagraphs.fast_path(fn, *examples, config=cudagraphs.Config(**options))


def take_memory(megabytes=256, value=7.0):
    """Allocate what others have freed, and fill it."""
    return [torch.full((1 << 18,), value, device="cuda") for _ in range(megabytes)]


def is_filled(blocks, value=7.0):
    """Whether memory that `take_memory` returned still has its values."""
    return all(bool((block == value).all()) for block in blocks)


def split_k(seed):
    """Return a product that cuBLAS computes with its workspace, and its operands."""
    return (lambda a, b: a @ b), (randn(64, 8192, seed=seed), randn(8192, 64, seed=seed + 1))


def recorded_product(seed):
    """Return the product as `fast_path` recorded it, the product, and its operands."""
    function, operands = split_k(seed)
    layer = nn.Identity()
    return fast_path(lambda a, b: layer(function(a, b)), *operands), function, operands
