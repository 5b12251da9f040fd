"""The penalty is computed of a parameter, and of a plain tensor."""

import torch


@torch.compile(backend="eager")
def penalty(w):
    return w.square().sum()  # DX120


penalty(torch.ones(4))
penalty(torch.nn.Parameter(torch.ones(4)))
