"""The sum over neighbours is written with indices; the sparse tensor stays outside."""

import torch


@torch.compile(backend="eager")
def aggregate(source, target, x):
    return torch.zeros_like(x).index_add(0, target, x[source]).relu()


target, source = torch.eye(4).to_sparse().indices()
aggregate(source, target, torch.ones(4, 4))
