"""The first call has sizes that differ, so torch makes two symbols."""

import torch


@torch.compile(backend="eager", dynamic=True)
def align(source, target):
    return source.sum() - target.sum()


align(torch.ones(8), torch.ones(6))
align(torch.ones(8), torch.ones(8))
