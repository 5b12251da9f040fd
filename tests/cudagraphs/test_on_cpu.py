"""Work on the CPU in the middle of a capture for CUDA: a replay would not do it, so the capture fails."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._runtime.cpu_ops import NothingOnCpu
from dynx.errors import CaptureFailed, DynxWarning

OUTSIDE = torch.arange(3.0)
EMPTY = torch.empty(0)
META = torch.ones(3, device="meta")  # stands for what is on the device

ON_CUDA = [pytest.mark.gpu, NO_GPU, pytest.mark.parametrize("device", ["cuda"], indirect=True)]


def on_cuda(test):
    for mark in ON_CUDA:
        test = mark(test)
    return test


@pytest.mark.parametrize(
    "work",
    [
        lambda: torch.tensor([2.0, 3.0]) * torch.ones(2),
        lambda: torch.tensor(3).item() + torch.full((2,), 1.0).sum().item(),
        lambda: torch.zeros(3).add_(1).clone().mul_(2),
        lambda: META * torch.tensor(2.0),
        lambda: OUTSIDE.view(3, 1).t()[0, 1:].shape,
        lambda: OUTSIDE.clone(),
        lambda: torch.rand_like(META),
        lambda: torch.zeros_like(OUTSIDE).add_(1) + OUTSIDE.new_ones(3),
        lambda: EMPTY.add_(1) + EMPTY,
    ],
    ids=[
        *("constants", "their values", "changed", "with the device", "views", "a copy", "random numbers of the device"),
        *("made like others", "empty ones"),
    ],
)
def test_what_python_makes_anew_is_a_number(work):
    with NothingOnCpu():
        work()


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda: OUTSIDE.add_(1), "changes a tensor"),
        (lambda: torch._foreach_add_([OUTSIDE], 1), "changes a tensor"),
        (lambda: OUTSIDE.copy_(torch.ones(3)), "changes a tensor"),
        (lambda: OUTSIDE[1:].view(2).zero_(), "changes a tensor"),
        (lambda: OUTSIDE * 2, "reads a tensor"),
        (lambda: OUTSIDE[1].item(), "reads a tensor"),
        (lambda: OUTSIDE.clone() + 1, "reads a tensor"),
        (lambda: OUTSIDE.double().sum(), "reads a tensor"),
        (lambda: META * OUTSIDE[0], "reads a tensor"),
        (lambda: torch.cat([torch.ones(1), OUTSIDE]), "reads a tensor"),
        (lambda: torch.rand(()), "draws random numbers"),
        (lambda: torch.rand_like(OUTSIDE), "draws random numbers"),
        (lambda: torch.ones(3).bernoulli_(), "draws random numbers"),
    ],
)
def test_what_a_replay_would_not_do_again_is_refused(work, why):
    before = OUTSIDE.clone()
    with pytest.raises(CaptureFailed, match=why), NothingOnCpu():
        work()
    assert torch.equal(OUTSIDE, before)


def test_a_backward_pass_reads_numbers_that_the_forward_pass_saved():
    with NothingOnCpu():
        saved = torch.tensor(2.0)
    with NothingOnCpu():
        assert (torch.tensor(3.0) * saved.view(1)).item() == 6
        torch.ones(3).mul_(saved)
    with pytest.raises(CaptureFailed, match="changes a tensor"), NothingOnCpu():
        saved.add_(1)
    outside = torch.tensor(2.0)
    with pytest.raises(CaptureFailed, match="reads a tensor"), NothingOnCpu():
        torch.ones(3).mul_(outside)


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) * torch.tensor(0.5)  # which the backward pass multiplies by too


@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
def test_numbers_in_modules_with_gradients(device, gradients):
    torch.manual_seed(0)
    model = Halves().to(device)
    config = cudagraphs.Config(runtime=RUNTIMES[device], gradients=gradients)
    run = cudagraphs.graphed(Halves().to(device), (torch.ones(2, 3, device=device),), config=config)
    run.load_state_dict(model.state_dict())
    for number in range(4):
        x = torch.full((2, 3), float(number), device=device)
        for each in (model, run):
            each.zero_grad()
            each(x).square().sum().backward()
        for mine, theirs in zip(run.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


class Counts(nn.Module):
    """Counts on the CPU how often it is called, and goes by that."""

    def __init__(self):
        super().__init__()
        self.layer, self.count = nn.Linear(3, 3), torch.zeros(())

    def forward(self, x):
        self.count += 1
        return (self.layer(x) * self.count).square().mean()


class Drops(nn.Module):
    """Leaves its layer out at random, as `layerdrop` of transformers does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.first(x)
        return (hidden if torch.rand(()) < 0.5 else self.second(hidden)).square().mean()


@on_cuda
@pytest.mark.parametrize(("kind", "why"), [(Counts, "changes a tensor on the CPU"), (Drops, "draws random numbers on the CPU")])
@pytest.mark.parametrize("way", ["train_step", "fast_path"])
def test_modules_that_do_so_run_uncaptured(device, kind, why, way):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(kind().to(device))
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    if way == "train_step":
        run = cudagraphs.train_step(models[0], models[0].parameters(), config=config)
    else:
        run = cudagraphs.fast_path(models[0], config=config)
    x, found, expected = torch.ones(2, 3, device=device), [], []
    torch.manual_seed(7)
    with pytest.warns(DynxWarning, match=why):
        found = [run(x).item() for _ in range(8)]
    torch.manual_seed(7)
    expected = [models[1](x).item() for _ in range(8)]
    assert found == expected
    assert cudagraphs.stats().replays == 0


@on_cuda
def test_copies_to_pinned_memory_are_part_of_the_graph(device):
    seen = torch.zeros(3, pin_memory=True)

    def function(x):
        seen.copy_(x * 2, non_blocking=True)
        return x + 1

    run = cudagraphs.fast_path(function, frozen=True, config=cudagraphs.Config(runtime=RUNTIMES[device]))
    for number in range(5):
        out = run(torch.full((3,), float(number), device=device))
        torch.cuda.synchronize()
        assert seen.tolist() == [2.0 * number] * 3
        assert out.tolist() == [number + 1.0] * 3
    assert cudagraphs.stats().replays == 4
