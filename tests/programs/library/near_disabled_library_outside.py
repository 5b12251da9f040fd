"""A function that the package itself disables for compilation is called around the compiled method, not inside it."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.timing import tick


class Loop:
    def __init__(self):
        self.state = torch.zeros(3)
        self.counts = {}
        self.advance = torch.compile(self._advance, backend="eager")

    def _advance(self, state, noise):
        return (state * 0.9 + noise).clamp(-1, 1)

    def run(self, steps):
        for _ in range(steps):
            self.state = self.advance(self.state, torch.randn(3))
            tick(self.counts, "advance")


torch.manual_seed(0)
Loop().run(4)
