"""Compiled code makes heavy use of the package, but only of the parts that torch traces without any trouble."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.functional import smooth
from fakelib.layers import GatedUnit
from fakelib.losses import smooth_l1
from fakelib.transforms import Compose

torch.manual_seed(0)
model = torch.nn.Sequential(GatedUnit(4), torch.nn.Linear(4, 4))
prepare = Compose(smooth, torch.tanh)


@torch.compile(backend="eager")
def loss_fn(x, y):
    return smooth_l1(model(prepare(x)) - y)


for _ in range(3):
    loss_fn(torch.randn(2, 4), torch.randn(2, 4)).backward()
