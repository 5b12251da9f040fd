"""`torch._dynamo.reset()` closes the recordings of compiled graphs, also of those that torch keeps."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed as dist
from support.configs import compiled, config_for
from torch import nn
from torch.distributed import _functional_collectives as collectives

from dynx import cudagraphs


@pytest.fixture
def one_rank(device):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo" if device == "cpu" else "nccl", f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()  # with NCCL it would not return, were a CUDA graph left


def train(run, model, device, steps=4):
    for _ in range(steps):
        model.zero_grad()
        run(torch.randn(3, 4, device=device)).square().mean().backward()


@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
def test_recordings_are_closed_and_later_calls_recorded_again(device, gradients):
    model = nn.Linear(4, 4).to(device)
    run = compiled(model, device, gradients=gradients)
    train(run, model, device)
    before = cudagraphs.stats()
    assert before.bytes_held > 0
    torch._dynamo.reset()
    assert cudagraphs.stats().bytes_held == 0
    train(run, model, device)
    assert cudagraphs.stats().recordings == 2 * before.recordings


def test_by_the_name_of_the_backend(device):
    options = {"runtime": config_for(device).runtime, "outputs": "alias"}
    run = torch.compile(torch.sin, backend="dynx_cudagraphs", options=options)
    for _ in range(3):
        run(torch.randn(3, device=device))
    assert cudagraphs.stats().bytes_held > 0
    torch._dynamo.reset()
    assert cudagraphs.stats().bytes_held == 0


def test_a_backward_pass_in_progress_keeps_its_memory(device):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(device), torch.randn(3, 4, device=device)
    run = compiled(model, device)
    train(run, model, device)
    model.zero_grad()
    loss = run(x).square().mean()
    torch._dynamo.reset()
    loss.backward()
    (expected,) = torch.autograd.grad(model(x).square().mean(), [model[0].weight])
    torch.testing.assert_close(model[0].weight.grad, expected)


def test_collectives_which_torch_keeps(one_rank, device):
    def reduced(x):
        return collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    run = compiled(reduced, device, outputs="alias")
    for number in range(4):
        x = torch.full((3,), float(number), device=device)
        assert run(x).tolist() == (x * 2 + 1).tolist()
    assert cudagraphs.stats().bytes_held > 0
    del run
    torch._dynamo.reset()
    assert cudagraphs.stats().bytes_held == 0
