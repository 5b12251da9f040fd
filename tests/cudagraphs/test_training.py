"""Training steps give what eager gives."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError


def pair(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(device)
    return model, copy.deepcopy(model)


def same_gradients(one, other):
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_a_loop_trains(compiled, device, outputs):
    model, other = pair(device)
    run = compiled(model, outputs=outputs)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, other)]
    for step in range(6):
        x = torch.randn(3, 4, device=device) + step
        for call, optimizer in zip((run, other), optimizers, strict=True):
            optimizer.zero_grad()
            call(x).square().mean().backward()
        same_gradients(model, other)
        for optimizer in optimizers:
            optimizer.step()
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 10)


class Following(torch.nn.Module):
    """Has the mean of what it sees, in a new tensor after each call."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.layer(x)
        self.mean = self.mean * 0.9 + y.detach().mean(0) * 0.1
        return y - self.mean


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
@pytest.mark.parametrize("with_gradients", [True, False])
def test_buffers_that_are_replaced(compiled, device, outputs, with_gradients):
    """The result of the last call is read where it lies, then copied: recordings that read it there are given back."""
    model = Following().to(device)
    other = copy.deepcopy(model)
    run = compiled(model, outputs=outputs)
    for step in range(9):
        x = torch.randn(3, 4, device=device) + step
        for call, module in ((run, model), (other, other)):
            with torch.set_grad_enabled(with_gradients):
                found = call(x).square().mean()
            module.zero_grad()
            if with_gradients:
                found.backward()
        torch.testing.assert_close(model.mean, other.mean)
        if with_gradients:
            same_gradients(model, other)


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_gradients_add_up(compiled, device, outputs):
    model, other = pair(device)
    run = compiled(model, outputs=outputs)
    for step in range(6):
        x = torch.randn(3, 4, device=device) + step
        run(x).square().mean().backward()
        other(x).square().mean().backward()
        same_gradients(model, other)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_gradients_that_a_replay_made_add_up(compiled, device, outputs):
    """Autograd keeps the first gradient as it is given, and adds the second to it: its memory must not be the recording's."""
    model, other = pair(device)
    run = compiled(model, outputs=outputs)
    for step in range(4):
        if step % 2 == 0:
            model.zero_grad(), other.zero_grad()
        kept = [each.grad for each in model.parameters()]
        x = torch.randn(3, 4, device=device) + step
        run(x).square().mean().backward()
        other(x).square().mean().backward()
        same_gradients(model, other)
        if step % 2:
            assert all(mine.grad is before for mine, before in zip(model.parameters(), kept, strict=True))
    assert cudagraphs.stats().replays == 6


def three_forwards_at_a_time(run, model, other, device):
    """Train a model and its twin, each time with three forward passes before the first backward pass."""
    for _ in range(4):
        x = [torch.randn(3, 4, device=device) for _ in range(3)]
        for call, each in ((run, model), (other, other)):
            each.zero_grad()
            losses = [call(one).square().mean() for one in x]
            for loss in losses:
                loss.backward()
        same_gradients(model, other)


def test_two_forwards_before_their_backwards(compiled, device):
    """What the first saved must not be overwritten by the second."""
    model, other = pair(device)
    three_forwards_at_a_time(compiled(model), model, other, device)
    assert cudagraphs.stats().recordings == 6, "three of each, used again and again"


@pytest.mark.parametrize("on_limit", ["eager", "lru"])
def test_no_room_for_a_forward_while_others_wait(compiled, device, on_limit):
    """A recording whose backward pass is still to come is not forgotten: the third forward runs as it is."""
    model, other = pair(device)
    run = compiled(model, max_recordings=2, on_limit=on_limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)
        three_forwards_at_a_time(run, model, other, device)
    assert (cudagraphs.stats().recordings, cudagraphs.stats().uncaptured) == {"eager": (4, 8), "lru": (10, 5)}[on_limit]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_gradients_in_place(compiled, device, accumulate):
    """Autograd sees one input; the graph writes to `.grad`, and adds where gradients are left."""
    model, other = pair(device)
    run = compiled(model, gradients="in_place")
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other)]
    for step in range(9):
        x = torch.randn(3, 4, device=device) + step
        for call, optimizer in zip((run, other), optimizers, strict=True):
            if step % accumulate == 0:
                optimizer.zero_grad()
            call(x).square().mean().backward()
        same_gradients(model, other)
        if step % accumulate == accumulate - 1:
            for optimizer in optimizers:
                optimizer.step()
    assert cudagraphs.stats().recordings == (2 if accumulate == 1 else 3)
    assert cudagraphs.stats().replays == 16


def test_gradients_in_place_of_arguments_too(compiled, device):
    model, other = pair(device)
    run = compiled(model, gradients="in_place")
    for step in range(4):
        x = torch.randn(3, 4, device=device).add_(step).requires_grad_()
        y = x.detach().clone().requires_grad_()
        run(x).sum().backward(), other(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
        same_gradients(model, other)
        with torch.no_grad():
            torch.testing.assert_close(run(x), other(x))


@pytest.mark.uncaptured
def test_gradients_in_place_refuse_hooks(compiled, device):
    model, _ = pair(device)
    model[2].bias.register_hook(lambda gradient: gradient * 2)
    run = compiled(model, gradients="in_place")
    x = torch.randn(3, 4, device=device)
    with pytest.raises(UsageError, match=r"parameter .*2.*bias has a hook"):
        run(x)


def test_gradients_of_arguments(compiled, device):
    run = compiled(lambda x, y: (x * y).sin())
    for step in range(5):
        given = [torch.randn(3, device=device).add_(step).requires_grad_() for _ in range(2)]
        eager = [each.detach().clone().requires_grad_() for each in given]
        run(*given).sum().backward()
        (eager[0] * eager[1]).sin().sum().backward()
        for mine, theirs in zip(given, eager, strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_a_result_may_be_changed(compiled, device, outputs):
    """Torch: autograd forbids to change a view that a function gave."""
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    run = compiled(lambda x: x @ weight + 1, outputs=outputs)
    for _ in range(4):
        found = run(torch.ones(3, 4, device=device))
        with torch.no_grad():
            found.mul_(2)
        assert found.tolist() == [[10.0] * 4] * 3
        weight.grad = None
        found.sum().backward()
        assert weight.grad.tolist() == [[3.0] * 4] * 4
