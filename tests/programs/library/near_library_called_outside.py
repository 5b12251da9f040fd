"""The functions of the package that would break a graph are called in eager code, before and after the compiled step."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site-packages"))

from fakelib.functional import first_above, safe_normalize
from fakelib.timing import worker_id


@torch.compile(backend="eager")
def spectrum(signal):
    return torch.fft.rfft(signal).abs()


torch.manual_seed(0)
worker = worker_id()
for _ in range(3):
    signal = safe_normalize(torch.randn(8))
    peak = first_above(spectrum(signal), 0.5)
