"""The gradient of the embedding is sparse, what the compiled function computes is not."""

import torch

embedding = torch.nn.Embedding(10, 4, sparse=True)


@torch.compile(backend="eager")
def loss(tokens):
    return embedding(tokens).sum()


loss(torch.tensor([1, 2])).backward()
