"""Graphs that inductor compiled, captured."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from cudagraphs_runtimes import NO_GPU

from dynx import cudagraphs
from dynx._torch.autograd import aot
from dynx._torch.autograd.inductor import keeping_saved_tensors
from dynx.errors import DynxWarning, UsageError


def model_of(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)).to(
        device
    )


def compiled(model, **config):
    return torch.compile(model, backend=cudagraphs.backend(cudagraphs.Config(inner="inductor", **config)))


def same_steps(run, model, device):
    """Compare forwards, losses and gradients with eager ones."""
    other = copy.deepcopy(model)
    for step in range(4):
        x = torch.randn(3, 8, device=device) + step
        losses = [call(x).square().mean() for call in (run, other)]
        torch.testing.assert_close(*losses)
        for loss, each in zip(losses, (model, other), strict=True):
            each.zero_grad()
            loss.backward()
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.filterwarnings("ignore:.*script_method")  # of torch's own modules, while they are imported
def test_without_cuda_it_is_inductor(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    model = model_of("cpu")
    with pytest.warns(DynxWarning, match="no CUDA device"):
        same_steps(compiled(model), model, "cpu")


def test_the_emulator_is_refused():
    with pytest.raises(UsageError, match="sees operators, not inductor's kernels"):
        cudagraphs.Config(inner="inductor", runtime="emulator")


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_forward_and_training(device, outputs):
    model = model_of(device)
    run = compiled(model, outputs=outputs)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 8, device=device)
            torch.testing.assert_close(run(x), model(x))
    assert cudagraphs.stats().replays == 3
    same_steps(run, model, device)
    assert cudagraphs.stats().replays == 9


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_misaligned_inputs(device):
    """Kernels are compiled for addresses that are multiples of 16."""
    model = model_of(device)
    run = compiled(model)
    memory = torch.randn(3 * 8 + 4, device=device)
    with torch.no_grad():
        for offset in (0, 1, 2, 3, 0, 1):
            x = memory[offset : offset + 24].view(3, 8)
            torch.testing.assert_close(run(x), model(x))


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_gradients_in_place(device):
    model = model_of(device)
    same_steps(compiled(model, gradients="in_place"), model, device)
    assert cudagraphs.stats().replays == 6


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
def test_a_graphed_module(device, gradients):
    model = model_of(device)
    x = torch.randn(3, 8, device=device)
    cudagraphs.graphed(model, (x,), gradients=gradients, config=cudagraphs.Config(inner="inductor"))
    same_steps(model, model, device)  # with a copy, which is not graphed
    assert cudagraphs.stats().replays == 8


@pytest.mark.filterwarnings("ignore:.*script_method")
def test_a_copy_of_a_graphed_module_is_its_own(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    model = model_of("cpu")
    with pytest.warns(DynxWarning, match="no CUDA device"):
        cudagraphs.graphed(model, (torch.randn(3, 8),), config=cudagraphs.Config(inner="inductor"))
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[3].bias.add_(1)
        x = torch.randn(3, 8)
        torch.testing.assert_close(other(x), model(x) + 1)


@pytest.mark.filterwarnings("ignore:.*script_method")
@pytest.mark.parametrize("keeping", [False, True])
def test_a_backward_pass_that_runs_again(keeping):
    """AOTAutograd has backward passes write over what the forward pass saved; one that is captured runs more than once."""
    torch._dynamo.reset()
    model, x = model_of("cpu"), torch.randn(3, 8)
    backend = aot.with_compilers(*[lambda gm, example_inputs: aot.boxed(lambda args: gm(*args))] * 3)
    with keeping_saved_tensors() if keeping else contextlib.nullcontext():
        run = torch.compile(model, backend=backend)
        run(x).sum().backward()
        loss = run(x).square().mean()
    if not keeping:
        with pytest.raises(RuntimeError, match="donated"):
            loss.backward(retain_graph=True)
        return
    one, other = (torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for _ in range(2))
    torch.testing.assert_close(one, other)
