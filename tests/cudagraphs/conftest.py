"""Fixtures: each test runs on the emulator and, where there is a GPU, on CUDA."""

from __future__ import annotations

import functools

import pytest
import torch
from support import configs
from support.devices import CPU_AND_CUDA
from support.hidden_number import Hidden

from dynx import cudagraphs


@pytest.fixture(params=CPU_AND_CUDA)
def device(request):
    """The device type to run on; fails a test on the CPU that replays nothing, unless it is marked `uncaptured`."""
    cudagraphs.reset()
    yield request.param
    replays = cudagraphs.stats().replays
    cudagraphs.reset()
    may_be_none = request.param != "cpu" or request.node.get_closest_marker("uncaptured")
    assert replays > 0 or may_be_none, "no graph was replayed, so the comparison with eager proves nothing"


@pytest.fixture(params=["copy", "patch"])
def inputs(request, device):
    """The value of the option `inputs` of the config: how inputs get into a replay."""
    if request.param != "copy" and device == "cuda":
        pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")
    return request.param


@pytest.fixture
def compiled(device, inputs):
    """Compile with the backend for the device; tests run once with each value of the option `inputs`."""
    return functools.partial(configs.compiled, device=device, inputs=inputs)


def give_memory_back():
    cudagraphs.reset()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@pytest.fixture
def clean_device():
    """No graphs of other tests on the device, and no memory that torch keeps; after the test again."""
    give_memory_back()
    yield
    give_memory_back()


@pytest.fixture
def hidden():
    """Restore at the end of a test the number that no search finds."""
    yield
    Hidden.factor = 1.0
