"""Attention is causal in the prompt, and not for one new token: a condition on the length, which becomes dynamic."""
import torch
from torch import nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        length = x.size(1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)  # DX224
        return y.transpose(1, 2).flatten(2)


torch.manual_seed(0)
attend = torch.compile(Attention(), backend="eager", dynamic=True)
attend(torch.randn(2, 5, 8))
