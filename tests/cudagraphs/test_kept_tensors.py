"""Tensors that autograd or Python keeps from the forward for the backward pass, besides `save_for_backward`."""

from __future__ import annotations

import copy

import pytest
import torch
from support.agreement import assert_same_grads
from support.configs import compiled, config_for
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from dynx import cudagraphs


class KeepsMask(torch.autograd.Function):
    """Keeps a tensor as an attribute of `ctx`."""

    @staticmethod
    def forward(ctx, x):
        ctx.mask = (x > 0).float()
        return x * ctx.mask

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.mask


class SavesMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).float()
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


def with_hook(y):
    mask = (y > 0).float()
    y.register_hook(lambda gradient: gradient * mask)
    return y * 2


def with_packed_tensors(y):
    with saved_tensors_hooks(lambda tensor: (tensor * 2,), lambda packed: packed[0] / 2):
        return y.sin() * y.cos()


def with_data(y):
    z = y * 1
    z.data = y.data * 2
    return z * 3


FUNCTIONS = {
    "attribute of ctx": KeepsMask.apply,
    "saved by a function": SavesMask.apply,
    "hook": with_hook,
    "packed by hooks": with_packed_tensors,
    "data": with_data,
}


def torch_compiles(function):
    """Return whether torch itself trains a function; 2.11 fails to trace a hook that uses a tensor of the forward."""
    x = torch.ones(2, 4, requires_grad=True)
    try:
        torch.compile(lambda x: function(x * 1).sum(), backend="eager")(x).backward()
    except UnboundLocalError:
        return False
    return True


def graphed(function, device, gradients):
    return cudagraphs.graphed(function, (torch.ones(2, 4, device=device),), gradients=gradients, config=config_for(device))


def compiled_with(function, device, gradients):
    return compiled(function, device, gradients=gradients)


@pytest.fixture
def is_compiled_by_torch(name, make):
    """Skips what torch cannot compile without dynx; a fixture, so that no replay is expected of a skipped test."""
    if make is compiled_with and not torch_compiles(FUNCTIONS[name]):
        pytest.skip("this torch raises UnboundLocalError for the hook with backend='eager' too")


@pytest.mark.usefixtures("is_compiled_by_torch")
@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
@pytest.mark.parametrize("make", [graphed, compiled_with])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_eager(name, make, device, gradients):
    torch.manual_seed(0)
    model = nn.Linear(4, 4).to(device)
    twin = copy.deepcopy(model)
    run = make(lambda x: FUNCTIONS[name](model(x)).square().sum(), device, gradients)
    for _ in range(5):
        x = torch.randn(2, 4, device=device)
        for module in (model, twin):
            module.zero_grad()
        run(x).backward()
        FUNCTIONS[name](twin(x)).square().sum().backward()
        assert_same_grads(model, twin)
