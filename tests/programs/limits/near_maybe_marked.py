"""`maybe_mark_dynamic` allows the code to fix the size."""

import torch


@torch.compile(backend="eager")
def scale(x):
    y = x * 2
    if x.size(0) == 4:
        y = y + 1
    return y


x = torch.ones(4)
torch._dynamo.maybe_mark_dynamic(x, 0)
scale(x)
