"""Which devices a test runs on: the emulator of CUDA graphs needs none, and `gpu` marks tests that need CUDA."""

from __future__ import annotations

import pytest

CPU_AND_CUDA = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def on_cuda(test):
    """Run a test that takes the `device` fixture on CUDA only."""
    return pytest.mark.gpu(pytest.mark.parametrize("device", ["cuda"], indirect=True)(test))
