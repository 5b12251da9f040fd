"""Some batches carry an extra "mask" entry, so the keys of the batch dict differ between calls."""
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, batch):
        if "mask" in batch:  # DX104
            features = batch["features"] * batch["mask"]
        else:
            features = batch["features"]
        return self.linear(features)


torch.manual_seed(0)
head = torch.compile(Head(), backend="eager")
head({"features": torch.randn(3, 6)})
head({"features": torch.randn(3, 6), "mask": torch.ones(3, 1)})
