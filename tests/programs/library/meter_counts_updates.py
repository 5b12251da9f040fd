"""A metric of a library counts its updates in a Python number: its user can only call it outside."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.counting import Meter

meter = Meter()


def evaluate(x):
    return meter(x) * 2  # DX101


evaluate = torch.compile(evaluate, backend="eager")
for _ in range(3):
    evaluate(torch.ones(3))
