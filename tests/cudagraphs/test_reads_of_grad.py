"""A function that reads `.grad` runs uncaptured: which gradients there are is no part of the state that is checked."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning

ENTRIES = {
    "fast_path": lambda function, x, config: cudagraphs.fast_path(function, config=config),
    "graphed": lambda function, x, config: cudagraphs.graphed(function, (x,), config=config),
}


class Scaled(nn.Module):
    """Adds the norm of its last gradient, if there is one."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        gradient = self.inner.weight.grad
        return self.inner(x) if gradient is None else self.inner(x) + gradient.norm()


@pytest.mark.uncaptured
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("begins", [False, True], ids=["without a gradient", "with a gradient"])
def test_gradients_that_are_read_are_those_of_the_call(device, entry, begins):
    model = Scaled().to(device)
    eager, x = model.forward, torch.randn(3, 4, device=device)
    model.inner.weight.grad = torch.ones(4, 4, device=device) if begins else None
    words = r"runs uncaptured: it reads \.grad at .*test_reads_of_grad.py.*forward, which a replay would not read again"

    def results():
        run = ENTRIES[entry](model, x, config_for(device))
        for number in range(4):
            yield run(x), eager(x)
            model.inner.weight.grad = torch.full((4, 4), float(number), device=device)

    with pytest.warns(DynxWarning, match=words) as caught:
        pairs = list(results())
    for actual, expected in pairs:
        torch.testing.assert_close(actual, expected)
    assert len(caught) == 1


@pytest.mark.filterwarnings("error::dynx.errors.DynxWarning")
def test_gradients_that_the_function_computes_are_captured(device):
    """What `zero_grad` reads decides nothing, and later gradients are those of the function."""
    model = nn.Linear(4, 1).to(device)

    @torch.enable_grad()
    def adapt(x):
        model.zero_grad()
        model(x).square().mean().backward()
        return x * model.bias.grad + torch.autograd.grad(model(x).sum(), model.bias)[0]

    run = cudagraphs.fast_path(adapt, unsafe_skip_checks=True, config=config_for(device))
    for number in range(4):
        x = torch.full((3, 4), float(number), device=device)
        result = run(x)
        torch.testing.assert_close(result, adapt(x))
    assert len(run.recordings) == 1


@pytest.mark.filterwarnings("error::dynx.errors.DynxWarning")
def test_unchecked_gradients_are_a_promise(device):
    """Whoever skips the checks promises that gradients stay where they are, as those of a recording do."""
    model, x = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device)
    gradient = model.weight.grad = torch.ones(4, 4, device=device)
    run = cudagraphs.fast_path(lambda x: x * model.weight.grad.sum(), unsafe_skip_checks=True, config=config_for(device))
    for number in range(4):
        gradient.fill_(number)
        torch.testing.assert_close(run(x), x * 16 * number)
    assert len(run.recordings) == 1


@pytest.mark.filterwarnings("error::dynx.errors.DynxWarning")
def test_a_training_step_reads_gradients(device):
    model, x = Scaled().to(device), torch.randn(3, 4, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = cudagraphs.train_step(lambda x: model(x).mean(), model.parameters(), optimizer=optimizer, config=config_for(device))
    _ = [step(x) for _ in range(4)]  # a step begins without gradients, so that each reads the same
