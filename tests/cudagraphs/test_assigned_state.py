"""Python state that a recorded function assigns, which replays do not: refused, or checked where only the first call does."""

from __future__ import annotations

import types
import warnings

import pytest
import torch
from support.configs import config_for
from support.twin_training import TwinTraining, sgd
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning

last = None


class Seen:
    shape = None


def assign_global(x):
    global last
    last = tuple(x.shape)
    return last


def assign_attribute_of_a_class(x):
    Seen.shape = tuple(x.shape)
    return Seen.shape


def assign_attribute_of_an_object(x, owner=types.SimpleNamespace()):  # noqa: B008
    owner.shape = list(x.shape)
    return owner.shape


def assign_number(x, owner=types.SimpleNamespace()):  # noqa: B008
    owner.rows = x.shape[0]
    return owner.rows


READ = {
    assign_global: lambda: last,
    assign_attribute_of_a_class: lambda: Seen.shape,
    assign_attribute_of_an_object: lambda: assign_attribute_of_an_object.__defaults__[0].shape,
    assign_number: lambda: assign_number.__defaults__[0].rows,
}


def recorded(entry, function, model, example, config):
    if entry == "train_step":
        return cudagraphs.train_step(function, model.parameters(), config=config)
    if entry == "graphed":
        return cudagraphs.graphed(function, (example,), config=config)
    return cudagraphs.fast_path(function, config=config)


@pytest.mark.uncaptured
@pytest.mark.parametrize("assign", READ)
@pytest.mark.parametrize("entry", ["fast_path", "graphed", "train_step"])
def test_values_that_each_call_assigns_are_those_of_the_call(device, entry, assign):
    model, config = nn.Linear(3, 3).to(device), config_for(device)

    def function(x):
        assign(x)
        return model(x).mean()

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* runs uncaptured: the function (assigns|changes) ", category=DynxWarning)
        run = recorded(entry, function, model, torch.ones(2, 3, device=device), config)
        for rows in (2, 3, 2, 3, 2, 3, 2, 2, 2, 3):
            x = torch.ones(rows, 3, device=device)
            run(x)
            found = READ[assign]()
            assert found == assign(x)


@pytest.mark.uncaptured
@pytest.mark.parametrize("entry", ["fast_path", "graphed", "train_step"])
def test_a_shape_that_a_module_notes_is_that_of_the_call(device, entry):
    class Noting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.shape = nn.Linear(3, 3), None

        def forward(self, x):
            self.shape = tuple(x.shape)
            return self.layer(x).mean()

    model, config = Noting().to(device), config_for(device)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* runs uncaptured: the function (assigns|changes) ", category=DynxWarning)
        run = recorded(entry, model, model, torch.ones(2, 3, device=device), config)
        for rows in (2, 3, 2, 3, 2, 3, 2, 3):
            run(torch.ones(rows, 3, device=device))
            assert model.shape == (rows, 3)


def recurrent_global(model, state):
    def loss(x):
        hidden = state["h"]
        y = model(x + (0 if hidden is None else hidden[0]))
        state["h"] = (y.detach(), y.detach() * 2)
        return y.square().mean()

    return loss


@pytest.mark.uncaptured
def test_tensors_that_a_step_reads_and_assigns_inside_of_a_tuple_match_eager(device):
    """Truncated backpropagation through time: a replay would read what the capture found there."""
    torch.manual_seed(0)
    models = [nn.Linear(4, 4).to(device), nn.Linear(4, 4).to(device)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [sgd(model) for model in models]
    losses = [recurrent_global(model, {"h": None}) for model in models]
    step = cudagraphs.train_step(losses[0], models[0].parameters(), optimizer=optimizers[0], config=config_for(device))
    x = torch.ones(3, 4, device=device)
    found, expected = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found += [step(x) for _ in range(6)]
    assert "the function assigns an element of a dict (and reads it)" in str(caught[0].message)
    for _ in range(6):
        optimizers[1].zero_grad()
        expected.append(losses[1](x))
        expected[-1].backward()
        optimizers[1].step()
    torch.testing.assert_close(torch.stack(found), torch.stack(expected).detach())


def test_state_that_the_first_step_makes_can_be_reset(device):
    """Replays read the tensor that the first step has made; after a reset the next step makes another one."""

    class Centered(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.center = nn.Linear(3, 1), None

        def forward(self, x):
            if self.center is None:
                self.center = x.mean(0)
            return self.layer(x - self.center).square().mean()

    twins = TwinTraining(device, Centered().to(device), sgd)
    for _ in range(3):
        twins.assert_steps_agree(5, shape=(4, 3))
        twins.change(lambda model, optimizer: setattr(model, "center", None))
    twins.assert_steps_agree(4, shape=(4, 3))


class ActNorm(nn.Module):
    """Sets its buffer from the first batch, as activation normalization and vector quantization do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.layer, self.is_ready = nn.Linear(4, 4), False

    def forward(self, x):
        if not self.is_ready:
            self.mean.copy_(x.mean(0))
            self.is_ready = True
        return self.layer(x - self.mean)


@pytest.mark.parametrize("entry", ["fast_path", "graphed"])
def test_examples_initialize_nothing_that_depends_on_data(device, entry):
    model, config = ActNorm().to(device), config_for(device)
    example, x = torch.full((2, 4), 7.0, device=device), torch.full((2, 4), 3.0, device=device)
    if entry == "graphed":
        run = cudagraphs.graphed(model, (example,), config=config)
    else:
        run = cudagraphs.fast_path(model, example, config=config)
    assert (model.is_ready, model.mean.sum().item()) == (False, 0.0)
    for _ in range(4):
        torch.testing.assert_close(run(x), model.layer(x - 3.0))
    assert (model.is_ready, model.mean.tolist()) == (True, [3.0] * 4)


def test_step_of_an_optimizer_that_is_wrapped_later_is_called(device):
    """A mask of gradients, a logger, a scheduler that is made after the step."""
    twins = TwinTraining(device, nn.Linear(3, 1).to(device), sgd, loss=lambda model, x: model(x).square().mean())
    twins.assert_steps_agree(4, shape=(4, 3))

    def halve_gradients(model, optimizer):
        step = optimizer.step

        def masked(closure=None):
            for param in model.parameters():
                param.grad.mul_(0.5)
            return step(closure)

        optimizer.step = masked

    twins.change(halve_gradients)
    twins.assert_steps_agree(4, shape=(4, 3))


def test_class_of_an_optimizer_whose_step_is_replaced_steps_so(device, monkeypatch):
    twins = TwinTraining(device, nn.Linear(3, 1).to(device), sgd, loss=lambda model, x: model(x).square().mean())
    twins.assert_steps_agree(4, shape=(4, 3))
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self, closure=None: None)
    twins.assert_steps_agree(4, shape=(4, 3))


@pytest.mark.parametrize("entry", ["fast_path", "graphed"])
def test_one_tensor_as_two_arguments_is_another_call(device, entry):
    model = nn.Linear(4, 4).to(device)

    def attend(query, key):
        return model(query) if key is query else model(query) + 100

    a, b = torch.ones(2, 4, device=device), torch.ones(2, 4, device=device)
    if entry == "graphed":
        run = cudagraphs.graphed(attend, (a, b), config=config_for(device))
    else:
        run = cudagraphs.fast_path(attend, config=config_for(device))
    for pair in [(a, b)] * 3 + [(a, a)] * 3 + [(a, b), (b, b), (b, a)]:
        torch.testing.assert_close(run(*pair), attend(*pair))


@pytest.mark.uncaptured
def test_attributes_of_tensor_arguments_run_uncaptured(device):
    model = nn.Linear(4, 4).to(device)
    run = cudagraphs.fast_path(lambda x: model(x) * getattr(x, "scale", 1.0), config=config_for(device))
    x = torch.ones(2, 4, device=device)
    x.scale = 5.0
    with pytest.warns(DynxWarning, match="argument x has an attribute scale, which a replay would not read"):
        found = [run(x) for _ in range(3)]
    torch.testing.assert_close(torch.stack(found), torch.stack([model(x) * 5] * 3))


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_are_graphed(device, kind):
    layer, x = kind(3, 4).to(device), torch.randn(5, 2, 3, device=device)
    run = cudagraphs.graphed(lambda x: layer(x)[0], (x,), config=config_for(device))
    for _ in range(3):
        torch.testing.assert_close(run(x), layer(x)[0])


def test_more_sizes_than_recordings_are_recorded_in_turn(device):
    model = nn.Linear(4, 4).to(device)
    run = cudagraphs.fast_path(model, config=config_for(device, max_recordings=2, on_limit="lru"))
    for number in range(20):
        x = torch.ones(1 + number % 5, 4, device=device)
        torch.testing.assert_close(run(x), model(x))
    assert cudagraphs.stats().recordings == 15
