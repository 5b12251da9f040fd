"""The library looks for a peak inside try/except with an operation of data-dependent size."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.functional import first_above


def onset(signal, threshold):
    energy = signal.square()
    return first_above(energy, threshold)  # DX501


torch.manual_seed(0)
detect = torch.compile(onset, backend="eager")
detect(torch.randn(12), 0.8)
