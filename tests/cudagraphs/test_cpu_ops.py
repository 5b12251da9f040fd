"""Work on the CPU during a capture for CUDA: a replay would not repeat it, so the capture fails."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from support.devices import on_cuda
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._runtime.cpu_ops import RejectCpuOps
from dynx.errors import CaptureFailed, DynxWarning

EXISTING = torch.arange(3.0)
EMPTY = torch.empty(0)
META = torch.ones(3, device="meta")  # stands for a tensor on the device


@pytest.mark.parametrize(
    "work",
    [
        lambda: torch.tensor([2.0, 3.0]) * torch.ones(2),
        lambda: torch.tensor(3).item() + torch.full((2,), 1.0).sum().item(),
        lambda: torch.zeros(3).add_(1).clone().mul_(2),
        lambda: META * torch.tensor(2.0),
        lambda: EXISTING.view(3, 1).t()[0, 1:].shape,
        lambda: EXISTING.clone(),
        lambda: torch.rand_like(META),
        lambda: torch.zeros_like(EXISTING).add_(1) + EXISTING.new_ones(3),
        lambda: EMPTY.add_(1) + EMPTY,
    ],
    ids=[
        *("constants", "item", "mutated", "with a device tensor", "views", "clone", "random numbers of the device"),
        *("zeros_like and new_ones", "empty"),
    ],
)
def test_cpu_ops_on_tensors_created_during_capture_are_allowed(work):
    with RejectCpuOps():
        work()


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda: EXISTING.add_(1), "changes a CPU tensor"),
        (lambda: torch._foreach_add_([EXISTING], 1), "changes a CPU tensor"),
        (lambda: EXISTING.copy_(torch.ones(3)), "changes a CPU tensor"),
        (lambda: EXISTING[1:].view(2).zero_(), "changes a CPU tensor"),
        (lambda: EXISTING * 2, "reads a CPU tensor"),
        (lambda: EXISTING[1].item(), "reads a CPU tensor"),
        (lambda: EXISTING.clone() + 1, "reads a CPU tensor"),
        (lambda: EXISTING.double().sum(), "reads a CPU tensor"),
        (lambda: META * EXISTING[0], "reads a CPU tensor"),
        (lambda: torch.cat([torch.ones(1), EXISTING]), "reads a CPU tensor"),
        (lambda: torch.rand(()), "draws random numbers"),
        (lambda: torch.rand_like(EXISTING), "draws random numbers"),
        (lambda: torch.ones(3).bernoulli_(), "draws random numbers"),
    ],
)
def test_cpu_ops_on_existing_tensors_and_cpu_random_ops_fail_the_capture(work, reason):
    before = EXISTING.clone()
    with pytest.raises(CaptureFailed, match=reason), RejectCpuOps():
        work()
    assert torch.equal(EXISTING, before)


def test_backward_capture_may_read_cpu_constants_created_by_forward_capture():
    with RejectCpuOps():
        saved = torch.tensor(2.0)
    with RejectCpuOps():
        assert (torch.tensor(3.0) * saved.view(1)).item() == 6
        torch.ones(3).mul_(saved)
    with pytest.raises(CaptureFailed, match="changes a CPU tensor"), RejectCpuOps():
        saved.add_(1)
    outside = torch.tensor(2.0)
    with pytest.raises(CaptureFailed, match="reads a CPU tensor"), RejectCpuOps():
        torch.ones(3).mul_(outside)


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) * torch.tensor(0.5)  # the backward pass multiplies by it too


@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
def test_graphed_modules_that_multiply_by_a_cpu_constant_get_eager_gradients(device, gradients):
    torch.manual_seed(0)
    model = Halves().to(device)
    config = config_for(device, gradients=gradients)
    run = cudagraphs.graphed(Halves().to(device), (torch.ones(2, 3, device=device),), config=config)
    run.load_state_dict(model.state_dict())
    for number in range(4):
        x = torch.full((2, 3), float(number), device=device)
        for module in (model, run):
            module.zero_grad()
            module(x).square().sum().backward()
        for param, twin_param in zip(run.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(param.grad, twin_param.grad)


class CountsCalls(nn.Module):
    """Counts its calls in a tensor on the CPU, and multiplies by the count."""

    def __init__(self):
        super().__init__()
        self.layer, self.count = nn.Linear(3, 3), torch.zeros(())

    def forward(self, x):
        self.count += 1
        return (self.layer(x) * self.count).square().mean()


class DropsLayers(nn.Module):
    """Skips a layer at random, as `layerdrop` of transformers does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.first(x)
        return (hidden if torch.rand(()) < 0.5 else self.second(hidden)).square().mean()


@on_cuda
@pytest.mark.parametrize(
    ("module", "reason"), [(CountsCalls, "changes a CPU tensor"), (DropsLayers, "draws random numbers on the CPU")]
)
@pytest.mark.parametrize("function", ["train_step", "fast_path"])
def test_modules_that_mutate_cpu_tensors_or_cpu_rng_run_uncaptured(device, module, reason, function):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(module().to(device))
    config = config_for(device)
    if function == "train_step":
        run = cudagraphs.train_step(models[0], models[0].parameters(), config=config)
    else:
        run = cudagraphs.fast_path(models[0], config=config)
    x = torch.ones(2, 3, device=device)
    torch.manual_seed(7)
    with pytest.warns(DynxWarning, match=reason):
        actual = [run(x).item() for _ in range(8)]
    torch.manual_seed(7)
    expected = [models[1](x).item() for _ in range(8)]
    assert actual == expected
    assert cudagraphs.stats().replays == 0


@on_cuda
def test_copies_to_pinned_memory_are_captured(device):
    pinned = torch.zeros(3, pin_memory=True)

    def function(x):
        pinned.copy_(x * 2, non_blocking=True)
        return x + 1

    run = cudagraphs.fast_path(function, unsafe_skip_checks=True, config=config_for(device))
    for number in range(5):
        out = run(torch.full((3,), float(number), device=device))
        torch.cuda.synchronize()
        assert pinned.tolist() == [2.0 * number] * 3
        assert out.tolist() == [number + 1.0] * 3
    assert cudagraphs.stats().replays == 4
