"""Counts calls of adapter layers on their class and scales the adapters by a ramp."""

import torch
from torch import nn


class LoRALinear(nn.Module):
    calls = 0
    ramp_calls = 4

    def __init__(self, features, rank=2, alpha=4.0):
        super().__init__()
        self.base = nn.Linear(features, features)
        self.down = nn.Linear(features, rank, bias=False)
        self.up = nn.Linear(rank, features, bias=False)
        self.scaling = alpha / rank

    @classmethod
    def ramp(cls):
        return min(1.0, cls.calls / cls.ramp_calls)

    def forward(self, x):
        LoRALinear.calls += 1
        return self.base(x) + self.ramp() * self.scaling * self.up(self.down(x))


class Adapter(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = LoRALinear(features)
        self.act = nn.GELU()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x + self.act(self.first(x)))


def main():
    torch.manual_seed(0)
    model = Adapter(8)
    compiled = torch.compile(model, backend="eager")
    batch = torch.randn(4, 8)
    with torch.no_grad():
        for step in range(6):
            print(f"step {step}: {compiled(batch).abs().mean().item():.4f}")
    print(f"{LoRALinear.calls} adapter calls")


if __name__ == "__main__":
    main()
