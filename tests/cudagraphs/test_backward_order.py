"""Backward passes that run twice, later than other calls, or after the recordings were closed."""

from __future__ import annotations

import copy

import pytest
import torch
from support.agreement import assert_same_grads
from support.configs import compiled, config_for
from torch import nn

from dynx import cudagraphs


def twice(call, first, second):
    loss = call(first).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()


def twice_around_another_forward(call, first, second):
    loss = call(first).square().sum()
    loss.backward(retain_graph=True)
    other = call(second).square().sum()
    loss.backward()
    other.backward()


def again_after_another_backward(call, first, second):
    loss = call(first).square().sum()
    loss.backward(retain_graph=True)
    call(second).square().sum().backward()
    loss.backward()


def after_a_reset(call, first, second):
    loss = call(first).square().sum()
    cudagraphs.reset()
    loss.backward()


def again_after_a_reset(call, first, second):
    loss = call(first).square().sum()
    loss.backward(retain_graph=True)
    cudagraphs.reset()
    call(second).square().sum().backward()
    loss.backward()


ORDERS = [twice, twice_around_another_forward, again_after_another_backward, after_a_reset, again_after_a_reset]


@pytest.mark.uncaptured  # a reset also resets the counters; the captures are asserted before
@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
@pytest.mark.parametrize("make", ["graphed", "compiled"])
@pytest.mark.parametrize("order", ORDERS)
def test_gradients_are_those_of_eager(device, order, make, gradients):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    twin = copy.deepcopy(model)
    first, second = torch.randn(2, 3, device=device), torch.randn(2, 3, device=device)
    if make == "graphed":
        call = cudagraphs.graphed(model, (first,), gradients=gradients, config=config_for(device))
    else:
        call = compiled(model, device, gradients=gradients)
    for _ in range(3):
        call(first).sum().backward()
    assert cudagraphs.stats().replays > 0
    model.zero_grad()
    order(call, first, second)
    order(twin, first, second)
    assert_same_grads(model, twin)
