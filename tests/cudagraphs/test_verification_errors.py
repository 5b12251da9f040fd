"""`Config(verify=n)`: the uncaptured run raises an exception, the replay of the same call does not."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from support.hidden_number import Hidden, hidden_factor
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning, ReplayDiffers


def batches(device, count=6):
    torch.manual_seed(1)
    return [torch.randn(3, 4).to(device) for _ in range(count)]


def fast_path(model, config):
    return cudagraphs.fast_path(model, config=config)


def raises_if_hidden():
    if hidden_factor() != 1.0:
        raise ValueError("the function raises now")
    return 1.0


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("entry", ["fast_path", "graphed", "train_step"])
def test_an_exception_of_the_uncaptured_run_leaves_what_the_replay_left(device, entry):
    """The replay succeeded: an error says that, and nothing is as before the call."""
    model, calls = nn.Linear(4, 4).to(device), torch.zeros((), device=device)

    def function(x):
        calls.add_(1)
        y = nn.functional.dropout(model(x), 0.5) * raises_if_hidden()
        calls.add_(0 if raises_if_hidden() else 1)
        return y.mean()

    x, config = batches(device)[0], config_for(device, verify=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if entry == "train_step":
        run = cudagraphs.train_step(function, model.parameters(), optimizer=optimizer, config=config)
    else:
        run = {"fast_path": fast_path, "graphed": lambda f, c: cudagraphs.graphed(f, (x,), config=c)}[entry](function, config)
    torch.manual_seed(0)
    for _ in range(3):
        run(x)
    Hidden.factor = 2.0
    before, weight, state = calls.item(), model.weight.detach().clone(), torch.get_rng_state()
    words = r"replay \d of .* differs from an uncaptured run .*: the uncaptured run raises ValueError: the function raises"
    with pytest.raises(ReplayDiffers, match=words) as error:
        run(x)
    assert isinstance(error.value.__cause__, ValueError)
    assert calls.item() == before + 1
    assert torch.equal(weight, model.weight) == (entry != "train_step")
    if device == "cpu":
        assert not torch.equal(state, torch.get_rng_state())


@pytest.mark.usefixtures("hidden")
def test_an_exception_of_the_uncaptured_backward_pass_leaves_what_the_replay_left(device):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raises_if_hidden()
            return gradient * 2

    model = nn.Linear(4, 4).to(device)
    x, config = batches(device)[0], config_for(device, verify=4)
    run = cudagraphs.graphed(lambda x: Scale.apply(model(x)), (x,), config=config)
    run(x).sum().backward()
    before = model.weight.grad.clone()
    out = run(x).sum()
    Hidden.factor = 2.0
    with pytest.raises(ReplayDiffers, match=r"of the backward pass of .*: the uncaptured run raises ValueError"):
        out.backward()
    torch.testing.assert_close(model.weight.grad, before)  # the gradients of the replay were not accumulated


def test_an_uncaptured_run_without_memory_is_no_difference(device, monkeypatch):
    model = nn.Identity()
    run = fast_path(lambda x: model(x) * without_memory(), config_for(device, verify=1))
    x = torch.ones(4, device=device)
    run(x)
    monkeypatch.setattr(Hidden, "factor", 2.0)
    with pytest.warns(DynxWarning, match="cannot be verified.*: the uncaptured run raises OutOfMemoryError: no memory"):
        torch.testing.assert_close(run(x), x)


def without_memory():
    from dynx.cudagraphs._runtime.capture_lock import trying_threads

    if hidden_factor() != 1.0 and trying_threads:
        raise torch.OutOfMemoryError("no memory")
    return 1.0
