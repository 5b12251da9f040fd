"""Runs a bank of experts whose classes inherit one forward and differ in their activation."""

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def activate(self, x):
        raise NotImplementedError

    def forward(self, x):
        return x + self.down(self.activate(self.up(x)))


REGISTRY = {}


def register(name, function):
    REGISTRY[name] = type(name, (Expert,), {"activate": staticmethod(function)})


for function in (F.relu, F.gelu, F.silu, F.mish, F.elu, F.selu, F.softplus, torch.tanh, torch.sigmoid, F.hardswish):
    register(f"{function.__name__.capitalize()}Expert", function)


class ExpertBank(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.experts = nn.ModuleDict({name: expert(width) for name, expert in REGISTRY.items()})
        self.gate = nn.Linear(width, len(self.experts))

    def forward(self, tokens):
        weights = self.gate(tokens).softmax(-1)
        outputs = torch.stack([expert(tokens) for expert in self.experts.values()], dim=-1)
        return (outputs * weights.unsqueeze(-2)).sum(-1)


def main():
    torch.manual_seed(0)
    bank = ExpertBank(8).eval()
    for expert in bank.experts.values():
        expert.compile(backend="eager")
    x = torch.randn(5, 8)
    with torch.no_grad():
        for scale in (0.5, 1.0, 2.0):
            print(f"scale {scale}: {bank(scale * x).square().mean().item():.4f}")


if __name__ == "__main__":
    main()
