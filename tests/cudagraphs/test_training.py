"""Compiled functions with gradients train as eager ones do."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from support.agreement import assert_same_grads

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError


def model_and_twin(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(device)
    return model, copy.deepcopy(model)


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_compiled_training_loop_matches_eager(compiled, device, outputs):
    model, twin = model_and_twin(device)
    run = compiled(model, outputs=outputs)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9) for module in (model, twin)]
    for step in range(6):
        x = torch.randn(3, 4, device=device) + step
        for call, optimizer in zip((run, twin), optimizers, strict=True):
            optimizer.zero_grad()
            call(x).square().mean().backward()
        assert_same_grads(model, twin)
        for optimizer in optimizers:
            optimizer.step()
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 10)


class TracksMean(torch.nn.Module):
    """Tracks the mean of its inputs in a buffer that each call rebinds to a new tensor."""

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
def test_buffer_rebound_in_every_forward_matches_eager(compiled, device, outputs, with_gradients):
    """The buffer is an output of the last replay; recordings that read it at its address are replaced by one that copies it."""
    model = TracksMean().to(device)
    twin = copy.deepcopy(model)
    run = compiled(model, outputs=outputs)
    for step in range(9):
        x = torch.randn(3, 4, device=device) + step
        for call, module in ((run, model), (twin, twin)):
            with torch.set_grad_enabled(with_gradients):
                actual = call(x).square().mean()
            module.zero_grad()
            if with_gradients:
                actual.backward()
        torch.testing.assert_close(model.mean, twin.mean)
        if with_gradients:
            assert_same_grads(model, twin)


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_compiled_backward_accumulates_gradients(compiled, device, outputs):
    model, twin = model_and_twin(device)
    run = compiled(model, outputs=outputs)
    for step in range(6):
        x = torch.randn(3, 4, device=device) + step
        run(x).square().mean().backward()
        twin(x).square().mean().backward()
        assert_same_grads(model, twin)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_compiled_backward_accumulates_in_place_onto_gradients_of_a_replay(compiled, device, outputs):
    """Autograd keeps the first gradient as `.grad` and accumulates into it, so it must not be memory of the recording."""
    model, twin = model_and_twin(device)
    run = compiled(model, outputs=outputs)
    for step in range(4):
        if step % 2 == 0:
            model.zero_grad(), twin.zero_grad()
        grads = [param.grad for param in model.parameters()]
        x = torch.randn(3, 4, device=device) + step
        run(x).square().mean().backward()
        twin(x).square().mean().backward()
        assert_same_grads(model, twin)
        if step % 2:
            assert all(param.grad is before for param, before in zip(model.parameters(), grads, strict=True))
    assert cudagraphs.stats().replays == 6


def train_with_three_pending_forwards(run, model, twin, device):
    """Train a model and its twin with three forward passes before the first backward pass."""
    for _ in range(4):
        x = [torch.randn(3, 4, device=device) for _ in range(3)]
        for call, module in ((run, model), (twin, twin)):
            module.zero_grad()
            losses = [call(tensor).square().mean() for tensor in x]
            for loss in losses:
                loss.backward()
        assert_same_grads(model, twin)


def test_several_compiled_forwards_before_backward_match_eager(compiled, device):
    """The second forward must not overwrite tensors that the first saved for backward."""
    model, twin = model_and_twin(device)
    train_with_three_pending_forwards(compiled(model), model, twin, device)
    assert cudagraphs.stats().recordings == 6, "three forwards and three backwards, reused"


@pytest.mark.parametrize("on_limit", ["eager", "lru"])
def test_recordings_whose_backward_is_pending_are_not_dropped(compiled, device, on_limit):
    """A recording whose backward has not run is not dropped: the third forward runs uncaptured."""
    model, twin = model_and_twin(device)
    run = compiled(model, max_recordings=2, on_limit=on_limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)
        train_with_three_pending_forwards(run, model, twin, device)
    assert (cudagraphs.stats().recordings, cudagraphs.stats().uncaptured) == {"eager": (4, 8), "lru": (10, 5)}[on_limit]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_in_place_gradients_match_eager(compiled, device, accumulate):
    """The graph writes to `.grad` itself, and accumulates into gradients that are set."""
    model, twin = model_and_twin(device)
    run = compiled(model, gradients="in_place")
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (model, twin)]
    for step in range(9):
        x = torch.randn(3, 4, device=device) + step
        for call, optimizer in zip((run, twin), optimizers, strict=True):
            if step % accumulate == 0:
                optimizer.zero_grad()
            call(x).square().mean().backward()
        assert_same_grads(model, twin)
        if step % accumulate == accumulate - 1:
            for optimizer in optimizers:
                optimizer.step()
    assert cudagraphs.stats().recordings == (2 if accumulate == 1 else 3)
    assert cudagraphs.stats().replays == 16


def test_in_place_gradients_of_parameters_keep_input_gradients_correct(compiled, device):
    model, twin = model_and_twin(device)
    run = compiled(model, gradients="in_place")
    for step in range(4):
        x = torch.randn(3, 4, device=device).add_(step).requires_grad_()
        y = x.detach().clone().requires_grad_()
        run(x).sum().backward(), twin(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
        assert_same_grads(model, twin)
        with torch.no_grad():
            torch.testing.assert_close(run(x), twin(x))


@pytest.mark.uncaptured
def test_in_place_gradients_raise_for_parameters_with_gradient_hooks(compiled, device):
    model, _ = model_and_twin(device)
    model[2].bias.register_hook(lambda gradient: gradient * 2)
    run = compiled(model, gradients="in_place")
    x = torch.randn(3, 4, device=device)
    with pytest.raises(UsageError, match=r"parameter .*2.*bias has a gradient hook"):
        run(x)


def test_compiled_function_sets_gradients_of_its_inputs(compiled, device):
    run = compiled(lambda x, y: (x * y).sin())
    for step in range(5):
        args = [torch.randn(3, device=device).add_(step).requires_grad_() for _ in range(2)]
        eager = [tensor.detach().clone().requires_grad_() for tensor in args]
        run(*args).sum().backward()
        (eager[0] * eager[1]).sin().sum().backward()
        for tensor, eager_tensor in zip(args, eager, strict=True):
            torch.testing.assert_close(tensor.grad, eager_tensor.grad)


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_differentiable_outputs_may_be_mutated_in_place(compiled, device, outputs):
    """Autograd forbids in-place changes of views that a `torch.autograd.Function` returned, so outputs are no such views."""
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    run = compiled(lambda x: x @ weight + 1, outputs=outputs)
    for _ in range(4):
        actual = run(torch.ones(3, 4, device=device))
        with torch.no_grad():
            actual.mul_(2)
        assert actual.tolist() == [[10.0] * 4] * 3
        weight.grad = None
        actual.sum().backward()
        assert weight.grad.tolist() == [[3.0] * 4] * 4


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_expanded_outputs_may_get_another_shape_in_place(compiled, device, outputs):
    weight = torch.ones(4, device=device, requires_grad=True)
    run = compiled(lambda x: (x * weight).sum().expand(4), outputs=outputs)
    for _ in range(4):
        actual = run(torch.ones(4, device=device))
        actual.unsqueeze_(0)
        assert actual.tolist() == [[4.0] * 4]
        weight.grad = None
        actual.sum().backward()
        assert weight.grad.tolist() == [4.0] * 4
