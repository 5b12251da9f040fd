"""`inputs="patch"`: replays read inputs at their own addresses; if patching cannot be verified, inputs are copied."""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref

import numpy as np
import pytest
import torch
from support.configs import config_for
from support.devices import on_cuda
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._compiled import observers
from dynx.cudagraphs._runtime import cuda
from dynx.cudagraphs._runtime.patching.pointer_scan import MisleadingWord
from dynx.errors import DynxWarning


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def mlp():
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))


def convolutions():
    return nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))


def embedding():
    return nn.Sequential(nn.Embedding(50, 64), Attention())


PATCHED = {
    "mlp": (mlp, lambda: torch.randn(16, 64)),
    "attention": (Attention, lambda: torch.randn(2, 16, 64)),
    "embedding": (embedding, lambda: torch.randint(0, 50, (2, 16))),
}
MODELS = {**PATCHED, "convolutions": (convolutions, lambda: torch.randn(2, 4, 16, 16))}  # cuDNN kernels may not be patchable


def config(device, **options):
    return config_for(device, inputs="patch", **options)


def inference_model(model, device):
    torch.manual_seed(0)
    return model().to(device, torch.half if device == "cuda" else torch.float).eval()


def cast_for(x, model, device):
    dtype = next(model.parameters()).dtype if x.is_floating_point() else x.dtype
    return x.to(device, dtype)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("outputs", ["clone", "static"])
def test_replays_of_compiled_models_patch_inputs_instead_of_copying(device, model, outputs):
    make, example = MODELS[model]
    net = inference_model(make, device)
    run = torch.compile(net, backend=cudagraphs.backend(config(device, outputs=outputs)))
    with torch.no_grad(), observers.compiled_graphs() as graphs:
        for _ in range(5):
            x = cast_for(example(), net, device)
            torch.testing.assert_close(run(x), net(x))
    assert cudagraphs.stats().replays == 4
    assert cudagraphs.stats().copies == 0, graphs[0].use().notes


@pytest.mark.parametrize("model", PATCHED)
def test_replays_of_fast_paths_patch_inputs_instead_of_copying(device, model):
    make, example = MODELS[model]
    net = inference_model(make, device)
    run = cudagraphs.fast_path(net, cast_for(example(), net, device), config=config(device))
    with torch.no_grad():
        for _ in range(5):
            x = cast_for(example(), net, device)
            torch.testing.assert_close(run(x), net(x), rtol=0, atol=0)
    assert (cudagraphs.stats().replays, cudagraphs.stats().copies) == (5, 0)


@on_cuda
@pytest.mark.parametrize("model", MODELS)
def test_replays_of_inductor_kernels_patch_inputs_instead_of_copying(device, model):
    make, example = MODELS[model]
    net = inference_model(make, device)
    run = torch.compile(net, backend=cudagraphs.backend(config(device, inner="inductor")))
    with torch.no_grad():
        for _ in range(5):
            x = cast_for(example(), net, device)
            torch.testing.assert_close(run(x), net(x), rtol=2e-2, atol=2e-2)
    assert cudagraphs.stats().replays == 4
    assert cudagraphs.stats().copies == 0 or model not in PATCHED


def test_patched_inputs_may_be_swapped_or_be_the_same_tensor(device):
    def function(x, y):
        return x * 2 + y, y - x

    run = torch.compile(function, backend=cudagraphs.backend(config(device)))
    tensors = [torch.randn(3, 4, device=device) for _ in range(3)]
    for first, second in ((0, 1), (0, 1), (1, 0), (1, 1), (2, 0), (0, 1)):
        torch.testing.assert_close(run(tensors[first], tensors[second]), function(tensors[first], tensors[second]))
    assert cudagraphs.stats().copies == 0


def test_misaligned_inputs_match_eager_with_patching_enabled(device):
    """Kernels are selected for the alignment of the example input."""
    net = inference_model(mlp, device)
    run = cudagraphs.fast_path(net, cast_for(torch.randn(16, 64), net, device), config=config(device))
    memory = cast_for(torch.randn(16 * 64 + 8), net, device)
    with torch.no_grad():
        for offset in (0, 1, 2, 3, 8, 1):
            x = memory[offset : offset + 16 * 64].view(16, 64)
            torch.testing.assert_close(run(x), net(x))


COPIED = {
    "mutates an input": lambda x: x.add_(1) * 2,
    "draws random numbers": lambda x: nn.functional.dropout(x),
    "returns an input": lambda x: (x, x + 1),
}


@pytest.mark.parametrize("function", COPIED.values(), ids=COPIED)
def test_functions_whose_inputs_cannot_be_patched_match_eager(device, function):
    run = torch.compile(function, backend=cudagraphs.backend(config(device)))
    for step in range(4):
        x = torch.randn(3, 4, device=device)
        y = x.clone()
        torch.manual_seed(step)
        actual = run(x)
        torch.manual_seed(step)
        torch.testing.assert_close((actual, x), (function(y), y))
    assert cudagraphs.stats().replays == 3


def test_verification_of_patched_inputs_does_not_update_batch_norm_statistics(device):
    """A replay that only verifies the patching would count as a batch in the running statistics."""
    norm, twin = (nn.BatchNorm1d(4).to(device) for _ in range(2))
    run = torch.compile(norm, backend=cudagraphs.backend(config(device)))
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(8, 4, device=device)
            torch.testing.assert_close(run(x), twin(x))
    torch.testing.assert_close(norm.state_dict(), twin.state_dict())


def test_non_contiguous_inputs_are_copied_instead_of_patched(device):
    run = torch.compile(torch.sin, backend=cudagraphs.backend(config(device)))
    for _ in range(4):
        x = torch.randn(4, 6, device=device)[:, ::2]
        torch.testing.assert_close(run(x), x.sin())
    assert cudagraphs.stats().copies == 3


def test_training_with_patched_inputs_matches_eager(device):
    torch.manual_seed(0)
    net = mlp().to(device)
    run = torch.compile(net, backend=cudagraphs.backend(config(device)))
    for _ in range(4):
        x = torch.randn(16, 64, device=device)
        net.zero_grad()
        run(x).square().mean().backward()
        actual = [param.grad.clone() for param in net.parameters()]
        net.zero_grad()
        net(x).square().mean().backward()
        torch.testing.assert_close(actual, [param.grad for param in net.parameters()])


@pytest.fixture
def triton_kernels():
    """A kernel that reads a tensor through an address in memory, if a flag says so; and one that counts back from an end."""
    pytest.importorskip("triton", reason="needs Triton")
    from support import triton_kernels

    return triton_kernels


@on_cuda
def test_addresses_in_memory_that_the_examples_do_not_read_are_found(device, triton_kernels):
    """The address is split in two halves, so that no parameter of a kernel holds it; the examples' flag is 0."""

    class Indirect(nn.Module):
        def forward(self, x, flag):
            address = x.data_ptr()
            high, low = (torch.full((1,), half, device=x.device) for half in (address >> 32, address & 0xFFFF_FFFF))
            return triton_kernels.add_indirect((high << 32) | low, flag, x)

    model = Indirect()
    run = cudagraphs.fast_path(model, config=config(device))
    for number in range(8):
        x = torch.full((64,), float(number), device=device)
        flag = torch.full((1,), int(number > 4), device=device)
        torch.testing.assert_close(run(x, flag), x * (2 if number > 4 else 1))
        torch.cuda.empty_cache()


@on_cuda
def test_pointers_to_the_end_of_an_input_follow_it(device, triton_kernels):
    class Backwards(nn.Module):
        def forward(self, x, y):
            return triton_kernels.read_back(x.data_ptr() + x.nbytes, x) + y

    run = cudagraphs.fast_path(Backwards(), config=config(device))
    kept = []
    for number in range(8):
        x, y = (torch.full((128,), float(number) * factor, device=device) for factor in (1, 100))
        kept += [torch.zeros(128 * number, device=device), x, y]  # so that inputs lie at other distances
        torch.testing.assert_close(run(x, y), x + y)


@pytest.mark.parametrize("inputs", ["copy", "memcpy_node", "patch"])
@pytest.mark.parametrize("outputs", ["clone", "static"])
def test_no_argument_of_the_recorded_call_is_kept_alive(inputs, outputs):
    run = cudagraphs.fast_path(mlp().eval(), config=config_for("cpu", inputs=inputs, outputs=outputs))
    owned = np.ones((16, 64), dtype=np.float32)
    memory = weakref.ref(owned)
    x = torch.from_numpy(owned)
    del owned
    before = cudagraphs.stats().replays
    with torch.no_grad():
        for _ in range(3):
            run(x)
    assert cudagraphs.stats().replays == before + 2
    del x
    gc.collect()
    assert memory() is None


@on_cuda
def test_no_attempt_reuses_addresses_that_misled_another(device, monkeypatch):
    """Padding keeps addresses of an earlier attempt: at the same addresses, it would mislead each of them."""
    used = []

    def mislead(first, capture, input_sets, inputs, select_clones):
        used.extend((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for copies in input_sets for tensor in copies)
        raise MisleadingWord("planted")

    monkeypatch.setattr(cuda, "make_verified_setter", mislead)
    model = inference_model(mlp, device)
    run = cudagraphs.fast_path(model, config=config(device))
    x = torch.randn(16, 64, dtype=torch.half, device=device)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)  # that inputs are copied instead
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x))
    used.sort()
    assert len(used) == 6
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(used))
