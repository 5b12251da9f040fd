"""Keeps statistics of activations in a process-wide singleton that every layer writes to, and reports them after training."""

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


class ActivationStore:
    _instance = None

    def __new__(cls):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.rms = defaultdict(list)
        return cls._instance

    def record(self, name, value):
        self.rms[name].append(value.detach().pow(2).mean().sqrt())

    def summary(self):
        return {name: torch.stack(values).mean().item() for name, values in self.rms.items()}


class Block(nn.Module):
    def __init__(self, name, dim):
        super().__init__()
        self.name = name
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, features, dim, depth):
        super().__init__()
        self.store = ActivationStore()
        self.embed = nn.Linear(features, dim)
        self.blocks = nn.ModuleList(Block(f"block{index}", dim) for index in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
            self.store.record(block.name, x)
        return self.head(x).squeeze(-1)


def main():
    torch.manual_seed(0)
    model = Regressor(features=6, dim=16, depth=2)
    predict = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    weights = torch.randn(6)
    for step in range(15):
        x = torch.randn(32, 6)
        loss = F.mse_loss(predict(x), torch.tanh(x @ weights))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1:2d} loss {loss.item():.4f}")
    for name, rms in ActivationStore().summary().items():
        print(f"{name} rms {rms:.4f} over {len(ActivationStore().rms[name])} steps")


if __name__ == "__main__":
    main()
