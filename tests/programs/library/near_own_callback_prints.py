"""The library only passes the call on; the print is in the user's own callback and so is a finding of the user's code."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.functional import with_scale


def saturate(x):
    y = torch.tanh(x)
    print("saturating", tuple(x.shape))  # DX201
    return y * 2


@torch.compile(backend="eager")
def respond(x):
    centered = x - x.mean()
    return with_scale(saturate, centered, 4.0)


torch.manual_seed(0)
respond(torch.randn(5))
