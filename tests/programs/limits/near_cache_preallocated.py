"""Eleven tokens are decoded, but the key cache is one tensor of fixed size with a position tensor: one version does."""
import torch


class Attention:
    def __init__(self, width, longest):
        self.wq, self.wk = torch.randn(width, width), torch.randn(width, width)
        self.keys = torch.zeros(longest, width)

    @torch.compile(backend="eager")
    def step(self, x, position):
        self.keys.index_copy_(0, position, (x @ self.wk).unsqueeze(0))
        scores = self.keys @ (x @ self.wq)
        hidden = torch.arange(scores.shape[0]) > position
        return scores.masked_fill(hidden, float("-inf")).softmax(0) @ self.keys


torch.manual_seed(0)
attention = Attention(4, 16)
x = torch.randn(4)
for token in range(11):
    x = attention.step(x, torch.tensor([token]))
