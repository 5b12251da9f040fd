"""The compiled function makes a sparse tensor."""

import torch


@torch.compile(backend="eager")
def product(mask, x):
    return mask.to_sparse() @ x  # DX214


product(torch.eye(4), torch.ones(4, 4))
