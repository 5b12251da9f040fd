"""The library function is harmless; the recompile for a second length belongs to the user's line that passes the tensor in."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.functional import smooth


@torch.compile(backend="eager")
def contour(pitch):
    line = smooth(pitch, 0.75)  # DX102
    return line - line.mean()


torch.manual_seed(0)
for length in (10, 14, 18):
    contour(torch.randn(length))
