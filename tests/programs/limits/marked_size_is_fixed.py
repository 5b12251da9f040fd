"""A size is marked dynamic, but the code needs one value of it."""

import torch


@torch.compile(backend="eager")
def scale(x):
    y = x * 2
    if x.size(0) == 4:  # DX302
        y = y + 1
    return y


x = torch.ones(4)
torch._dynamo.mark_dynamic(x, 0)
try:
    scale(x)
except Exception as error:
    print(error)
