"""The function raises an exception of its own, also without torch.compile."""

import torch


@torch.compile(backend="eager")
def project(x, weight):
    if x.size(-1) != weight.size(0):
        raise ValueError("the sizes differ")
    return x @ weight


try:
    project(torch.ones(4), torch.ones(3, 4))
except ValueError as error:
    print(error)
