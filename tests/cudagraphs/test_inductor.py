"""CUDA graphs of what inductor compiled: `inner="inductor"`."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from support.agreement import assert_same_grads
from support.devices import on_cuda

from dynx import cudagraphs
from dynx._torch.autograd import aot
from dynx._torch.autograd.inductor import keeping_saved_tensors
from dynx.errors import DynxWarning, UsageError


def layer_norm_mlp(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)).to(
        device
    )


def compiled(model, **options):
    return torch.compile(model, backend=cudagraphs.backend(cudagraphs.Config(inner="inductor", **options)))


def assert_steps_agree(run, model, device):
    """Compare forwards, losses and gradients with eager ones."""
    twin = copy.deepcopy(model)
    for step in range(4):
        x = torch.randn(3, 8, device=device) + step
        losses = [call(x).square().mean() for call in (run, twin)]
        torch.testing.assert_close(*losses)
        for loss, module in zip(losses, (model, twin), strict=True):
            module.zero_grad()
            loss.backward()
        assert_same_grads(model, twin)


@pytest.mark.slow
def test_inner_inductor_without_a_cuda_device_warns_and_matches_eager(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    model = layer_norm_mlp("cpu")
    with pytest.warns(DynxWarning, match="no CUDA device"):
        assert_steps_agree(compiled(model), model, "cpu")


def test_inner_inductor_on_the_emulator_raises():
    with pytest.raises(UsageError, match="emulates operators, not inductor's kernels"):
        cudagraphs.Config(inner="inductor", runtime="emulator")


@on_cuda
@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_inner_inductor_matches_eager_in_inference_and_training(device, outputs):
    model = layer_norm_mlp(device)
    run = compiled(model, outputs=outputs)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 8, device=device)
            torch.testing.assert_close(run(x), model(x))
    assert cudagraphs.stats().replays == 3
    assert_steps_agree(run, model, device)
    assert cudagraphs.stats().replays == 9


@on_cuda
def test_inner_inductor_with_misaligned_inputs_matches_eager(device):
    """Inductor compiles kernels for input addresses that are multiples of 16."""
    model = layer_norm_mlp(device)
    run = compiled(model)
    memory = torch.randn(3 * 8 + 4, device=device)
    with torch.no_grad():
        for offset in (0, 1, 2, 3, 0, 1):
            x = memory[offset : offset + 24].view(3, 8)
            torch.testing.assert_close(run(x), model(x))


@on_cuda
def test_inner_inductor_with_in_place_gradients_matches_eager(device):
    model = layer_norm_mlp(device)
    assert_steps_agree(compiled(model, gradients="in_place"), model, device)
    assert cudagraphs.stats().replays == 6


@on_cuda
@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
def test_graphed_module_with_inner_inductor_matches_eager(device, gradients):
    model = layer_norm_mlp(device)
    x = torch.randn(3, 8, device=device)
    cudagraphs.graphed(model, (x,), gradients=gradients, config=cudagraphs.Config(inner="inductor"))
    assert_steps_agree(model, model, device)  # against a deepcopy, which is not graphed
    assert cudagraphs.stats().replays == 8


@pytest.mark.slow
def test_deepcopy_of_a_graphed_module_has_its_own_parameters(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    model = layer_norm_mlp("cpu")
    with pytest.warns(DynxWarning, match="no CUDA device"):
        cudagraphs.graphed(model, (torch.randn(3, 8),), config=cudagraphs.Config(inner="inductor"))
    model_copy = copy.deepcopy(model)
    with torch.no_grad():
        model_copy[3].bias.add_(1)
        x = torch.randn(3, 8)
        torch.testing.assert_close(model_copy(x), model(x) + 1)


@pytest.mark.parametrize("keeping", [False, True])
def test_backward_can_run_twice_inside_keeping_saved_tensors(keeping):
    """AOTAutograd donates saved tensors to the backward pass, which overwrites them; a captured one runs more than once."""
    torch._dynamo.reset()
    model, x = layer_norm_mlp("cpu"), torch.randn(3, 8)
    backend = aot.with_compilers(*[lambda gm, example_inputs: aot.boxed(lambda args: gm(*args))] * 3)
    with keeping_saved_tensors() if keeping else contextlib.nullcontext():
        run = torch.compile(model, backend=backend)
        run(x).sum().backward()
        loss = run(x).square().mean()
    if not keeping:
        with pytest.raises(RuntimeError, match="donated"):
            loss.backward(retain_graph=True)
        return
    first, second = (torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second)
