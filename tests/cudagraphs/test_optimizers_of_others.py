"""`train_step` with optimizers, wrappers and schedulers as people publish them, against an eager twin."""

from __future__ import annotations

import warnings

import pytest
import torch
from support.configs import config_for
from support.published_optimizers import ALL, count_at
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError

STEPS = 14
REFUSED = {
    "hooked": "has step hooks, which a replay would not call",
    "master_weights_of_deepspeed": "has parameters that were not passed to train_step",
}
REFUSED_ON_CUDA = {"super_step_counting_on_cpu": "counts its steps in a CPU tensor"}


def trained(published, device, *, is_captured):
    """Return losses, parameters after each step, and the counts at the end."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    batches = [torch.randn(8, 4).to(device) for _ in range(3)]
    params = list(model.parameters())
    optimizer, after = published.make(params)

    def loss(x):
        return model(x).square().mean() + 0.1 * model(x).mean()

    def eager_step(x):
        for param in params:
            param.grad = None
        value = loss(x)
        value.backward()
        optimizer.step()
        return value.detach()

    step = cudagraphs.train_step(loss, params, optimizer=optimizer, config=config_for(device)) if is_captured else eager_step
    history = []
    for number in range(STEPS):
        value = step(batches[number % 3])
        history.append([value.clone(), *(param.detach().clone() for param in params)])
        after()
    return history, [count_at(optimizer, path) for path in published.counts]


@pytest.mark.uncaptured
@pytest.mark.parametrize("published", ALL, ids=lambda published: published.name)
def test_training_is_that_of_eager_torch(device, published):
    """Of 107 optimizers, 41 were trained with frozen numbers or one step too far, without a warning (7 crashed)."""
    history, counts = trained(published, device, is_captured=False)
    refused, refusal = REFUSED | (REFUSED_ON_CUDA if device == "cuda" else {}), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)  # that they run uncaptured, and why
        try:
            captured, captured_counts = trained(published, device, is_captured=True)
        except UsageError as error:
            refusal = str(error)
    if published.name in refused or refusal:
        assert refused[published.name] in refusal
        return
    torch.testing.assert_close(captured, history)
    assert list(map(repr, captured_counts)) == list(map(repr, counts))


class Decay(torch.optim.SGD):
    """Counts its steps in an attribute."""

    t = 0

    def step(self, closure=None):
        self.t += 1
        self.param_groups[0]["lr"] = 0.1 / self.t
        super().step()


@pytest.mark.uncaptured
def test_the_line_of_the_counter_is_named(device):
    model = nn.Linear(2, 1).to(device)
    step = cudagraphs.train_step(
        lambda x: model(x).sum(), model.parameters(), optimizer=Decay(model.parameters(), 0.1), config=config_for(device)
    )
    words = r"changes attribute t of a Decay \(.*test_optimizers_of_others.py:\d+ in Decay.step\), which a replay would not do"
    with pytest.warns(DynxWarning, match=words):
        _ = [step(torch.ones(3, 2, device=device)) for _ in range(4)]


class Counted(torch.optim.SGD):
    """Counts its steps in a tensor that it changes in place, as the warning advises."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.t = torch.zeros((), device=self.param_groups[0]["params"][0].device)

    def step(self, closure=None):
        self.t.add_(1)
        with torch.no_grad():
            for param in self.param_groups[0]["params"]:
                param.sub_(param.grad * (0.1 / self.t))


def test_a_counter_that_follows_the_advice_is_captured(device):
    model = nn.Linear(2, 1).to(device)
    optimizer = Counted(model.parameters(), 0.1)
    step = cudagraphs.train_step(
        lambda x: model(x).sum(), model.parameters(), optimizer=optimizer, config=config_for(device, or_error=True)
    )
    for _ in range(6):
        step(torch.ones(3, 2, device=device))
    assert optimizer.t.item() == 6
    assert cudagraphs.stats().replays == 5


@pytest.mark.uncaptured
def test_hooks_of_all_optimizers_are_refused(device):
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = register_optimizer_step_pre_hook(lambda *args: None)
    try:
        with pytest.raises(UsageError, match="SGD has step hooks"):
            cudagraphs.train_step(lambda x: model(x).sum(), model.parameters(), optimizer=optimizer, config=config_for(device))
    finally:
        handle.remove()


class Averaging(nn.Module):
    """Keeps an average in an attribute that it assigns anew, so that a replay would read the first one for ever."""

    def __init__(self):
        super().__init__()
        self.linear, self.average = nn.Linear(2, 1), torch.zeros(())

    def forward(self, x):
        loss = self.linear(x).square().mean()
        self.average = self.average * 0.5 + loss.detach()
        return loss * (1 + self.average)


@pytest.mark.uncaptured
def test_an_attribute_that_the_loss_reads_and_assigns_is_refused(device):
    model = Averaging().to(device)
    model.average = model.average.to(device)
    twin = Averaging().to(device)
    twin.load_state_dict(model.state_dict())
    twin.average = twin.average.to(device)
    step = cudagraphs.train_step(
        model, model.parameters(), optimizer=torch.optim.SGD(model.parameters(), 0.1), config=config_for(device)
    )
    optimizer, x = torch.optim.SGD(twin.parameters(), 0.1), torch.ones(3, 2, device=device)
    with pytest.warns(DynxWarning, match=r"assigns average \(and reads it\), which a replay would not do"):
        losses = [step(x) for _ in range(5)]
    for loss in losses:
        optimizer.zero_grad()
        expected = twin(x)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach())


class Both(torch.optim.Optimizer):
    """Steps two optimizers that have different learning rates."""

    def __init__(self, params):
        params = list(params)
        super().__init__(params, {})
        self.first, self.second = torch.optim.SGD(params[:1], lr=0.1), torch.optim.SGD(params[1:], lr=0.2)

    def step(self, closure=None):
        self.first.step()
        self.second.step()


def test_two_optimizers_with_different_defaults_are_captured(device):
    model = nn.Linear(2, 1).to(device)
    step = cudagraphs.train_step(
        lambda x: model(x).sum(),
        model.parameters(),
        optimizer=Both(model.parameters()),
        config=config_for(device, or_error=True),
    )
    for _ in range(4):
        step(torch.ones(3, 2, device=device))
    assert cudagraphs.stats().replays == 3
