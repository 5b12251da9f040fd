"""The parameter is passed as a plain tensor."""

import torch


@torch.compile(backend="eager")
def penalty(w):
    return w.square().sum()


penalty(torch.ones(4))
penalty(torch.nn.Parameter(torch.ones(4)).detach())
