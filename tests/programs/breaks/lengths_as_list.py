"""The lengths are converted to a Python list."""

import torch


@torch.compile(backend="eager")
def longest(x, lengths):
    sizes = lengths.tolist()  # DX202
    return x * max(sizes)


longest(torch.ones(4), torch.tensor([2, 3]))
