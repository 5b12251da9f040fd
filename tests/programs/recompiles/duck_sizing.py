"""The first call has two equal sizes, which torch then takes for one."""

import torch


@torch.compile(backend="eager", dynamic=True)
def align(source, target):
    return source.sum() - target.sum()  # DX102


align(torch.ones(8), torch.ones(8))
align(torch.ones(8), torch.ones(6))
