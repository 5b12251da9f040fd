"""The layer is created with log=False and the transforms without verbose, so their logging and printing is never reached."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.layers import LoggedLinear
from fakelib.transforms import Compose


class Tower(torch.nn.Module):
    def __init__(self, *widths):
        super().__init__()
        pairs = zip(widths, widths[1:])
        self.layers = torch.nn.ModuleList(LoggedLinear(a, b, log=False) for a, b in pairs)
        self.prepare = Compose(torch.abs, torch.log1p, verbose=False)

    def forward(self, x):
        x = self.prepare(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


torch.manual_seed(0)
tower = torch.compile(Tower(4, 8, 8, 2), backend="eager")
tower(torch.randn(3, 4))
