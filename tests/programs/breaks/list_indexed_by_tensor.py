"""A scale is looked up in a Python list by a tensor."""

import torch

scales = [1.0, 2.0, 3.0]


@torch.compile(backend="eager")
def apply(x, level):
    return x * scales[level]  # DX202 [torch>=2.13], DX223 [torch<2.13]


apply(torch.ones(4), torch.tensor(1))
