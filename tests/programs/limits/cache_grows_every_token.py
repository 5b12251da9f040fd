"""A key-value cache kept as a growing Python list forces a recompile per token until torch gives up."""
import torch


class Attention:
    def __init__(self, width):
        self.wq, self.wk = torch.randn(width, width), torch.randn(width, width)

    @torch.compile(backend="eager")
    def step(self, x, keys):
        q = x @ self.wq
        stacked = torch.stack(keys)  # DX301
        weights = (stacked @ q).softmax(0)
        return weights @ stacked, x @ self.wk


torch.manual_seed(0)
attention = Attention(4)
x, keys = torch.randn(4), [torch.randn(4)]
for token in range(11):
    x, key = attention.step(x, keys)
    keys.append(key)
