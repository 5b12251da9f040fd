"""What tests of dynx.cudagraphs run on."""

from __future__ import annotations

import pytest
import torch

RUNTIMES = {"cpu": "emulator", "cuda": "cuda"}
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TWO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
