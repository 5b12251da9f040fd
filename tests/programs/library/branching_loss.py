"""The third-party loss branches on the value of a tensor; the training step reaches it through a helper."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

import fakelib.losses

torch.manual_seed(0)
weight = torch.randn(3, requires_grad=True)


def objective(x, y):
    error = x @ weight - y
    return fakelib.losses.huber_once(error, delta=3.0)  # DX501


@torch.compile(backend="eager")
def loss_fn(x, y):
    penalty = 0.01 * weight.square().sum()
    return objective(x, y) + penalty


loss_fn(torch.randn(4, 3), torch.randn(4)).backward()
