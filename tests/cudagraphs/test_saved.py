"""What is saved for a backward pass lasts until that has read it, also where hooks keep it or a graph is divided."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
from torch.autograd.graph import saved_tensors_hooks

from dynx import cudagraphs


def large_only(tensor):
    return tensor.clone() if tensor.numel() > 10 else tensor


HOOKS = {
    "as they are": (lambda each: each, lambda each: each),
    "aliases": (torch.Tensor.detach, lambda each: each),
    "copies": (torch.clone, torch.clone),
    "large ones": (large_only, lambda each: each),
}


def gradients(run, device, *, calls=5):
    """Do two forward passes, then their backward passes."""
    found = []
    for number in range(calls):
        xs = [torch.full((2,), 0.1 * (number + each), device=device, requires_grad=True) for each in (1, 9)]
        zs = [torch.full((20,), 0.1 * (number + each), device=device, requires_grad=True) for each in (2, 5)]
        ys = [run(x, z) for x, z in zip(xs, zs, strict=True)]
        for y in ys:
            y.backward()
        found += [each.grad for each in (*xs, *zs)]
    return found


def work(x, z):
    return x.sin().exp().sum() * z.sin().exp().sum()


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_may_keep_what_is_saved(compiled, device, name):
    run = compiled(work)
    with saved_tensors_hooks(*HOOKS[name]):
        found = gradients(run, device)
    for one, other in zip(found, gradients(work, device), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("gradients_go", ["autograd", "in_place"])
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_and_graphed_functions(device, name, gradients_go):
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    layer = torch.nn.Linear(20, 20).to(device)

    def scaled(x, z):
        return work(x, layer(z))

    x = torch.ones(2, device=device, requires_grad=True)
    z = torch.ones(20, device=device, requires_grad=True)
    run = cudagraphs.graphed(scaled, (x, z), gradients=gradients_go, config=config)
    with saved_tensors_hooks(*HOOKS[name]):
        found = gradients(run, device)
    for one, other in zip(found, gradients(scaled, device), strict=True):
        torch.testing.assert_close(one, other)


def test_tensors_that_hooks_give_back_with_other_strides(compiled, device):
    def square(x):
        return x.sin().exp()

    run = compiled(square)
    for unpack in (torch.clone, lambda each: each.t().contiguous().t()):
        with saved_tensors_hooks(torch.clone, unpack):
            for number in range(8):
                x = torch.rand(2, 3, generator=torch.Generator().manual_seed(number)).to(device).requires_grad_()
                run(x).sum().backward()
                y = x.detach().clone().requires_grad_()
                square(y).sum().backward()
                torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("hook", [None, "as they are", "aliases"])
def test_a_divided_forward_twice(compiled, device, hook, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)

    def divided(x, z):
        size = (x.sin().cos().sum() * 10).long()
        kept = (x * 0.5).exp()
        number = size.item()
        return (kept.sin() * number).cos().sin().sum() * z.sin().exp().sum()

    run = compiled(divided)
    if hook is None:
        found = gradients(run, device)
    else:
        with saved_tensors_hooks(*HOOKS[hook]):
            found = gradients(run, device)
    for one, other in zip(found, gradients(divided, device), strict=True):
        torch.testing.assert_close(one, other)


def test_a_backward_pass_again(compiled, device):
    run = compiled(work)
    for _ in range(3):
        x = torch.ones(2, device=device, requires_grad=True)
        y = run(x, torch.ones(20, device=device))
        y.backward(retain_graph=True)
        once = x.grad.clone()
        y.backward()
        torch.testing.assert_close(x.grad, 2 * once)


def test_static_results_of_forward_passes_need_one_recording(compiled, device):
    weight = torch.ones(3, device=device, requires_grad=True)
    run = compiled(lambda x: (x * weight).exp(), outputs="static")
    for _ in range(20):
        run(torch.ones(3, device=device))
    assert cudagraphs.stats().recordings == 1
