"""The compiled model calls a helper that was taken out of compilation with torch.compiler.disable."""
import torch
from torch import nn


@torch.compiler.disable
def record(stats, value):
    stats.append(value.detach().clone())


class Monitored(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)
        self.stats = []

    def forward(self, x):
        h = self.linear(x)
        record(self.stats, h)  # DX205
        return torch.sigmoid(h)


torch.manual_seed(0)
model = torch.compile(Monitored(), backend="eager")
model(torch.randn(2, 5))
