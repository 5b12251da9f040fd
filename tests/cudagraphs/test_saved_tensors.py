"""Tensors saved for backward stay valid until they are read, also with saved tensor hooks and split graphs."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from torch.autograd.graph import saved_tensors_hooks

from dynx import cudagraphs


def large_only(tensor):
    return tensor.clone() if tensor.numel() > 10 else tensor


HOOKS = {
    "identity": (lambda tensor: tensor, lambda tensor: tensor),
    "detach": (torch.Tensor.detach, lambda tensor: tensor),
    "clone": (torch.clone, torch.clone),
    "clone large tensors": (large_only, lambda tensor: tensor),
}


def grads_of(run, device, *, calls=5):
    """Run two forward passes, then their backward passes; return the gradients of all inputs."""
    actual = []
    for number in range(calls):
        xs = [torch.full((2,), 0.1 * (number + offset), device=device, requires_grad=True) for offset in (1, 9)]
        zs = [torch.full((20,), 0.1 * (number + offset), device=device, requires_grad=True) for offset in (2, 5)]
        ys = [run(x, z) for x, z in zip(xs, zs, strict=True)]
        for y in ys:
            y.backward()
        actual += [tensor.grad for tensor in (*xs, *zs)]
    return actual


def loss_of(x, z):
    return x.sin().exp().sum() * z.sin().exp().sum()


@pytest.mark.parametrize("name", HOOKS)
def test_compiled_gradients_with_saved_tensor_hooks_match_eager(compiled, device, name):
    run = compiled(loss_of)
    with saved_tensors_hooks(*HOOKS[name]):
        actual = grads_of(run, device)
    for actual_grad, expected_grad in zip(actual, grads_of(loss_of, device), strict=True):
        torch.testing.assert_close(actual_grad, expected_grad)


@pytest.mark.parametrize("gradients_option", ["autograd", "in_place"])
@pytest.mark.parametrize("name", HOOKS)
def test_graphed_gradients_with_saved_tensor_hooks_match_eager(device, name, gradients_option):
    config = config_for(device)
    layer = torch.nn.Linear(20, 20).to(device)

    def scaled(x, z):
        return loss_of(x, layer(z))

    x = torch.ones(2, device=device, requires_grad=True)
    z = torch.ones(20, device=device, requires_grad=True)
    run = cudagraphs.graphed(scaled, (x, z), gradients=gradients_option, config=config)
    with saved_tensors_hooks(*HOOKS[name]):
        actual = grads_of(run, device)
    for actual_grad, expected_grad in zip(actual, grads_of(scaled, device), strict=True):
        torch.testing.assert_close(actual_grad, expected_grad)


def test_saved_tensor_hooks_that_change_strides_match_eager(compiled, device):
    def square(x):
        return x.sin().exp()

    run = compiled(square)
    for unpack in (torch.clone, lambda tensor: tensor.t().contiguous().t()):
        with saved_tensors_hooks(torch.clone, unpack):
            for number in range(8):
                x = torch.rand(2, 3, generator=torch.Generator().manual_seed(number)).to(device).requires_grad_()
                run(x).sum().backward()
                y = x.detach().clone().requires_grad_()
                square(y).sum().backward()
                torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("hook", [None, "identity", "detach"])
def test_two_forwards_of_a_split_graph_before_backward_match_eager(compiled, device, hook, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)

    def split(x, z):
        size = (x.sin().cos().sum() * 10).long()
        saved = (x * 0.5).exp()
        number = size.item()
        return (saved.sin() * number).cos().sin().sum() * z.sin().exp().sum()

    run = compiled(split)
    if hook is None:
        actual = grads_of(run, device)
    else:
        with saved_tensors_hooks(*HOOKS[hook]):
            actual = grads_of(run, device)
    for actual_grad, expected_grad in zip(actual, grads_of(split, device), strict=True):
        torch.testing.assert_close(actual_grad, expected_grad)


def test_backward_twice_with_retain_graph_doubles_the_gradient(compiled, device):
    run = compiled(loss_of)
    for _ in range(3):
        x = torch.ones(2, device=device, requires_grad=True)
        y = run(x, torch.ones(20, device=device))
        y.backward(retain_graph=True)
        once = x.grad.clone()
        y.backward()
        torch.testing.assert_close(x.grad, 2 * once)


def test_static_outputs_without_backward_need_one_recording(compiled, device):
    weight = torch.ones(3, device=device, requires_grad=True)
    run = compiled(lambda x: (x * weight).exp(), outputs="static")
    for _ in range(20):
        run(torch.ones(3, device=device))
    assert cudagraphs.stats().recordings == 1
