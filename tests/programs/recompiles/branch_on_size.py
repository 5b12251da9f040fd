"""Sizes are dynamic, yet a Python branch on the batch size splits them into two compiled versions."""
import torch


@torch.compile(backend="eager", dynamic=True)
def pool(x, weight):
    h = x @ weight
    if x.size(0) > 6:  # DX102
        return h.mean(dim=0)
    return h.sum(dim=0)


torch.manual_seed(0)
weight = torch.randn(4, 4)
for batch in (3, 5, 4, 9, 12):
    pool(torch.randn(batch, 4), weight)
