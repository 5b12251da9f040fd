"""The normalization of a third-party package calls .item(), which breaks the graph of the user's function."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.functional import safe_normalize


@torch.compile(backend="eager")
def cosine(a, b):
    product = a * b
    unit = safe_normalize(product)  # DX501
    return unit.sum()


torch.manual_seed(0)
cosine(torch.randn(6), torch.randn(6))
