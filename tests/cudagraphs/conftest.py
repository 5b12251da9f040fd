"""Every test runs on the emulator, and where there is a GPU on that."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES

from dynx import cudagraphs


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
def device(request):
    cudagraphs.reset()
    yield request.param
    replays = cudagraphs.stats().replays
    cudagraphs.reset()
    may_be_none = request.param != "cpu" or request.node.get_closest_marker("uncaptured")
    assert replays > 0 or may_be_none, "nothing was replayed: what was compared is no recording"


@pytest.fixture(params=["copy", "patch"])
def inputs(request, device):
    """How inputs are staged."""
    if request.param != "copy" and device == "cuda":
        pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")
    return request.param


@pytest.fixture
def compiled(device, inputs):
    """Compile with the backend, on the runtime of the device."""

    def compile(fn, *, dynamic=False, **config):
        backend = cudagraphs.backend(cudagraphs.Config(runtime=RUNTIMES[device], inputs=inputs, **config))
        return torch.compile(fn, backend=backend, dynamic=dynamic)

    return compile
