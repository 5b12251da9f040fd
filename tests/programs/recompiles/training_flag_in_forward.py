"""forward() itself asks self.training to decide whether to add noise."""
import torch
from torch import nn


class NoisyGate(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.gate = nn.Linear(8, experts, bias=False)

    def scores(self, x):
        logits = self.gate(x)
        if self.training:  # DX107
            logits = logits + torch.rand_like(logits) * 0.1
        return logits

    def forward(self, x):
        return self.scores(x).softmax(dim=-1)


torch.manual_seed(0)
gate = NoisyGate(3)
gate.compile(backend="eager")
gate(torch.randn(5, 8))
gate.eval()
gate(torch.randn(5, 8))
