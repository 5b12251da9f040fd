"""`gradients="in_place"`: state that changes between calls, and arguments that share memory."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.configs import config_for
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


def compile_in_place(function, device):
    backend = cudagraphs.backend(config_for(device, gradients="in_place"))
    return torch.compile(function, backend=backend)


@pytest.fixture
def trained(device):
    """A module after three training steps, and its compiled callable."""
    model = Scaled().to(device)
    run = compile_in_place(model, device)
    for _ in range(3):
        run(torch.ones(3, device=device)).backward()
    model.weight.grad = None
    return model, run


def expected_grad(model, x):
    weight = model.weight.detach().clone().requires_grad_()
    (x * weight).sin().sum().backward()
    return weight.grad


def test_in_place_gradients_match_eager_after_freezing_and_unfreezing_parameters(device):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Scaled(0.5), nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.first(x) * self.second

    model, twin = (Two().to(device) for _ in range(2))
    run = compile_in_place(model, device)
    for number in range(12):
        for module in (model, twin):
            module.first.requires_grad_(number // 3 % 2 == 0)
            module.zero_grad()
        x = torch.full((3,), number + 1.0, device=device)
        run(x).backward()
        twin(x).backward()
        for (name, param), twin_param in zip(model.named_parameters(), twin.parameters(), strict=True):
            assert (param.grad is None) == (twin_param.grad is None), (number, name)
            torch.testing.assert_close(param.grad, twin_param.grad, msg=lambda text, name=name, n=number: f"{n} {name}: {text}")


def test_in_place_gradients_are_set_on_a_new_parameter_with_the_same_storage(trained, device):
    model, run = trained
    x = torch.ones(3, device=device)
    model.weight = nn.Parameter(model.weight.data)
    for _ in range(3):
        model.weight.grad = None
        run(x).backward()
        torch.testing.assert_close(model.weight.grad, expected_grad(model, x))


def test_autograd_grad_of_inputs_does_not_change_in_place_parameter_gradients(trained, device):
    model, run = trained
    x = torch.ones(3, device=device, requires_grad=True)
    for _ in range(3):
        (gradient,) = torch.autograd.grad(run(x), [x])
        torch.testing.assert_close(gradient, model.weight.detach() * x.detach().cos())
        assert model.weight.grad is None
    run(x).backward()
    once = expected_grad(model, x.detach())
    torch.testing.assert_close(model.weight.grad, once)
    run(x).backward(inputs=[x])
    torch.testing.assert_close(model.weight.grad, once)
    run(x).backward()
    torch.testing.assert_close(model.weight.grad, 2 * once)


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_in_place_gradients_raise_for_gradient_hooks_registered_after_capture(trained, device, register):
    model, run = trained
    handle = getattr(model.weight, register)(lambda gradient: None)
    with pytest.raises(UsageError, match="has a gradient hook"):
        run(torch.ones(3, device=device))
    handle.remove()
    run(torch.ones(3, device=device)).backward()


IGNORE_OVERLAP_WARNING = pytest.mark.filterwarnings("ignore:.*arguments share memory that it mutates")


@IGNORE_OVERLAP_WARNING
def test_in_place_gradients_with_overlapping_mutated_arguments_match_eager(device):
    class MutatesInput(Scaled):
        def forward(self, x, y):
            x.add_(1)
            return (y * self.weight).sin()

    model = MutatesInput().to(device)
    run = compile_in_place(model, device)
    for _ in range(5):
        memory = torch.ones(4, device=device)
        run(memory[:3], overlapping := memory[1:]).sum().backward()
        assert overlapping.tolist() == [2.0, 2.0, 1.0]
        torch.testing.assert_close(run(torch.zeros(3, device=device), overlapping), (overlapping * model.weight).sin())


def test_in_place_gradients_raise_for_parameters_of_a_ddp_module(device):
    """DDP is checked for before the first capture and before each recapture."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = Scaled().to(device)
        run, x = compile_in_place(model, device), torch.ones(3, device=device)
        for _ in range(2):
            run(x).backward()
        ddp_model = Scaled().to(device)
        run_ddp, wrapped = compile_in_place(ddp_model, device), nn.parallel.DistributedDataParallel(ddp_model)
        for _ in range(2):
            with pytest.raises(UsageError, match="belong to a DistributedDataParallel, whose hooks"):
                run_ddp(x)
        wrapped = nn.parallel.DistributedDataParallel(model)
        model.weight.data = model.weight.data.clone()
        run(x).backward()  # runs eagerly: the new address is recorded by the next call
        with pytest.raises(UsageError, match="belong to a DistributedDataParallel, whose hooks"):
            run(x)
        del wrapped
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.uncaptured
@IGNORE_OVERLAP_WARNING
def test_argument_that_aliases_a_mutated_buffer_matches_eager(device):
    class Counting(Scaled):
        def forward(self, x):
            self.kept.add_(1)
            return x * self.weight

    model = Counting().to(device)
    run = compile_in_place(model, device)
    for step in range(5):
        assert run(model.kept[:]).tolist() == [step + 1.0] * 3


@pytest.mark.slow
def test_threads_that_pass_different_models_get_their_own_results(device):
    def call(model, x):
        return x * model.weight

    run = compile_in_place(call, device)
    models = [Scaled(scale).to(device) for scale in (1.0, 10.0)]
    x = torch.ones(3, device=device)
    for model in models * 3:
        run(model, x)
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda number: run(models[number % 2], x).tolist(), range(200)))
    assert actual == [[1.0] * 3, [10.0] * 3] * 100


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        y = self.layer(x)
        self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return y * self.calls, self.mean


def test_replays_mutate_buffers_in_place_instead_of_rebinding_them(device):
    model = Counting().to(device)
    twin, calls, mean = copy.deepcopy(model), model.calls, model.mean
    run = compile_in_place(model, device)
    for number in range(8):
        x = torch.full((2, 3), float(number), device=device)
        for call, module in ((run, model), (twin, twin)):
            module.zero_grad()
            call(x)[0].sum().backward()
        assert model.calls is calls
        assert model.mean is mean
        torch.testing.assert_close(model.state_dict(), twin.state_dict())
        torch.testing.assert_close(model.layer.weight.grad, twin.layer.weight.grad)
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 14)
