"""The scales are a tensor, and the index has one element; the loop has a mask; the longest length stays a tensor."""

import torch

scales = torch.tensor([1.0, 2.0, 3.0])


@torch.compile(backend="eager")
def refine(x, level, steps, lengths):
    for step in range(4):
        x = torch.where(step < steps, x * scales[level.view(1)], x)
    return x * lengths.max()


for value in (1, 2):
    refine(torch.ones(4), torch.tensor(value), torch.tensor(value), torch.tensor([2, 3]))
