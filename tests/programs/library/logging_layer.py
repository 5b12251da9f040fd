"""A layer from a third-party package writes to its log in forward()."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.layers import LoggedLinear
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = LoggedLinear(4, 8)
        self.outer = nn.Linear(8, 2)

    def features(self, x):
        return torch.relu(self.inner(x))  # DX501

    def forward(self, x):
        return self.outer(self.features(x))


torch.manual_seed(0)
classifier = torch.compile(Classifier(), backend="eager")
for _ in range(2):
    classifier(torch.randn(3, 4))
