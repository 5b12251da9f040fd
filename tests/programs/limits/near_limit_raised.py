"""Eleven temperatures make ten recompiles, but the script has raised the limit, so nothing falls back to eager."""
import torch
from torch import nn

torch._dynamo.config.recompile_limit = 32


class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 7)
        self.tenths = 1

    def forward(self, h):
        logits = self.head(h)
        return (logits * 10 / self.tenths).softmax(-1)  # DX101


torch.manual_seed(0)
sampler = Sampler()
sample = torch.compile(sampler, backend="eager")
for sampler.tenths in range(1, 12):
    sample(torch.randn(2, 4))
