"""Batches of sequences and batches of tokens are both passed as rows; the number of rows is dynamic."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


@torch.compile(backend="eager")
def predict(x):
    return model(x) * 2


for batch in (torch.ones(8, 4), torch.ones(2, 5, 4), torch.ones(2, 2, 3, 4)):
    rows = batch.flatten(0, -2)
    torch._dynamo.mark_dynamic(rows, 0)
    predict(rows).view(batch.shape)
