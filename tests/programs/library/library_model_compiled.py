"""The user compiles a model that comes from the package as it is; there is no user code but the call."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

import fakelib

torch.manual_seed(0)
model = fakelib.layers.LoggedLinear(5, 2)
compiled = torch.compile(model, backend="eager")
batch = torch.randn(3, 5)
output = compiled(batch)  # DX501
