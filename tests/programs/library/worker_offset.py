"""A library function asks the operating system for the process id, and that is a C function."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib import timing


class Augment:
    def __init__(self, size):
        self.offsets = torch.linspace(0, 1, size)

    def shift(self, x):
        index = timing.worker_id()  # DX501
        return x + self.offsets[index] * 0


augment = Augment(7)
shift = torch.compile(augment.shift, backend="eager")
shift(torch.ones(4))
