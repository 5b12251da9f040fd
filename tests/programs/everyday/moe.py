"""Mixture of experts with per expert gather (token dropping free)."""
import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, dim=16, hidden=32, n_experts=2):
        super().__init__()
        self.gate = nn.Linear(dim, n_experts)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(n_experts))
        self.capacity = 0.0

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weight, choice = probs.max(-1)
        load = float(probs.mean(0).max())  # DX202
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mask = (choice == i).unsqueeze(-1)
            y = y + expert(x) * mask * weight.unsqueeze(-1)
        return y, load


class Router(nn.Module):
    """Picks the tokens above a threshold; the rest skip the block."""

    def __init__(self, dim=16):
        super().__init__()
        self.score = nn.Linear(dim, 1)
        self.block = nn.Linear(dim, dim)

    def forward(self, x):
        s = self.score(x).squeeze(-1)
        keep = torch.nonzero(s > 0).squeeze(-1)  # DX209
        picked = self.block(x[keep])
        return x.index_add(0, keep, picked)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.moe = MoE()
        self.router = Router()


torch.manual_seed(0)
m = Model()
moe = torch.compile(m.moe, backend="eager")
router = torch.compile(m.router, backend="eager")
x = torch.randn(24, 16)
for _ in range(2):
    y, load = moe(x)
    z = router(y.detach())
print(z.shape, round(load, 2))
