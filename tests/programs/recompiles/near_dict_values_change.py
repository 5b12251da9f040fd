"""A new dict of tensors is built for each call, always with the same keys and shapes, and only the values differ."""
import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleDict({"user": nn.Linear(4, 3), "item": nn.Linear(6, 3)})

    def forward(self, batch):
        encoded = {name: self.towers[name](values) for name, values in batch.items()}
        return (encoded["user"] * encoded["item"]).sum(-1)


torch.manual_seed(0)
score = torch.compile(TwoTower(), backend="eager")
for _ in range(3):
    score({"user": torch.randn(2, 4), "item": torch.randn(2, 6)})
