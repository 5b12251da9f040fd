"""The mask is None on the first call and a tensor on the second."""
import torch


def attention(q, k, mask=None):
    scores = q @ k.t()
    if mask is not None:  # DX114
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1)


torch.manual_seed(0)
compiled = torch.compile(attention, backend="eager")
q, k = torch.randn(3, 4), torch.randn(3, 4)
compiled(q, k)
compiled(q, k, torch.triu(torch.ones(3, 3, dtype=torch.bool), 1))
