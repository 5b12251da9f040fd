"""After a graph break inside `try`, each helper of the library is compiled on its own, and again for each kind of argument."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.counting import smooth


def preprocess(signal):
    return smooth(signal) + 1  # DX501


preprocess = torch.compile(preprocess, backend="eager")
preprocess(torch.ones(4))
