"""With fullgraph=True, the mode is resolved to a tensor outside."""

import torch


@torch.compile(backend="eager", fullgraph=True)
def scale(x, is_double):
    return torch.where(is_double, x * 2, x + 1)


for index in range(10):
    scale(torch.ones(4), torch.tensor(index % 2 == 0))
