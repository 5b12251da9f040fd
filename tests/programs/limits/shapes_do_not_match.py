"""An operator in a helper does not accept the shapes."""

import torch


def project(y, weight):
    return y @ weight  # DX302


@torch.compile(backend="eager")
def step(x, weight):
    y = x * 2
    return project(y, weight)


try:
    step(torch.ones(4), torch.ones(3, 4))
except Exception as error:
    print(error)
