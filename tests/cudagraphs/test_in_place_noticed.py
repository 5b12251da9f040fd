"""Gradients that are written in place: what changes between calls, and what shares memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError


class Scaled(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), scale))
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, x):
        return (x * self.weight).sin().sum()


def in_place(function, device):
    backend = cudagraphs.backend(cudagraphs.Config(runtime=RUNTIMES[device], gradients="in_place"))
    return torch.compile(function, backend=backend)


@pytest.fixture
def trained(device):
    """A module that was trained for three steps, and what runs it."""
    model = Scaled().to(device)
    run = in_place(model, device)
    for _ in range(3):
        run(torch.ones(3, device=device)).backward()
    model.weight.grad = None
    return model, run


def expected_of(model, x):
    weight = model.weight.detach().clone().requires_grad_()
    (x * weight).sin().sum().backward()
    return weight.grad


def test_another_parameter_in_the_same_memory(trained, device):
    model, run = trained
    x = torch.ones(3, device=device)
    model.weight = nn.Parameter(model.weight.data)
    for _ in range(3):
        model.weight.grad = None
        run(x).backward()
        torch.testing.assert_close(model.weight.grad, expected_of(model, x))


def test_gradients_of_arguments_only(trained, device):
    model, run = trained
    x = torch.ones(3, device=device, requires_grad=True)
    for _ in range(3):
        (gradient,) = torch.autograd.grad(run(x), [x])
        torch.testing.assert_close(gradient, model.weight.detach() * x.detach().cos())
        assert model.weight.grad is None
    run(x).backward()
    once = expected_of(model, x.detach())
    torch.testing.assert_close(model.weight.grad, once)
    run(x).backward(inputs=[x])
    torch.testing.assert_close(model.weight.grad, once)
    run(x).backward()
    torch.testing.assert_close(model.weight.grad, 2 * once)


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_that_come_later_are_refused(trained, device, register):
    model, run = trained
    handle = getattr(model.weight, register)(lambda gradient: None)
    with pytest.raises(UsageError, match="has a hook on its gradient"):
        run(torch.ones(3, device=device))
    handle.remove()
    run(torch.ones(3, device=device)).backward()


MIXED = pytest.mark.filterwarnings("ignore:.*arguments lie in the same memory as what it changes")


@MIXED
def test_arguments_that_overlap(device):
    class Adding(Scaled):
        def forward(self, x, y):
            x.add_(1)
            return (y * self.weight).sin()

    model = Adding().to(device)
    run = in_place(model, device)
    for _ in range(5):
        memory = torch.ones(4, device=device)
        run(memory[:3], other := memory[1:]).sum().backward()
        assert other.tolist() == [2.0, 2.0, 1.0]
        torch.testing.assert_close(run(torch.zeros(3, device=device), other), (other * model.weight).sin())


@pytest.mark.uncaptured
@MIXED
def test_an_argument_that_is_a_buffer(device):
    class Counting(Scaled):
        def forward(self, x):
            self.kept.add_(1)
            return x * self.weight

    model = Counting().to(device)
    run = in_place(model, device)
    for step in range(5):
        assert run(model.kept[:]).tolist() == [step + 1.0] * 3


def test_models_of_several_threads(device):
    def call(model, x):
        return x * model.weight

    run = in_place(call, device)
    models = [Scaled(scale).to(device) for scale in (1.0, 10.0)]
    x = torch.ones(3, device=device)
    for model in models * 3:
        run(model, x)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: run(models[number % 2], x).tolist(), range(200)))
    assert found == [[1.0] * 3, [10.0] * 3] * 100
