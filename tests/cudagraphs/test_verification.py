"""`Config(verify=n)`: the first replays are compared with uncaptured runs of the same calls."""

from __future__ import annotations

import copy
import time

import pytest
import torch
from support.configs import config_for
from support.hidden_number import Hidden, hidden_factor
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._recording.effects import Effects, differences
from dynx.cudagraphs._recording.random_states import RandomStates
from dynx.cudagraphs._recording.restored_memory import Bytes
from dynx.errors import DynxWarning, ReplayDiffers, UsageError


class Model(nn.Module):
    """Statistics in buffers, random numbers, and two layers."""

    def __init__(self, device):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)).to(device)

    def forward(self, x):
        return self.layers(x)


def batches(device, count=6):
    torch.manual_seed(1)
    return [torch.randn(3, 4).to(device) for _ in range(count)]


def fast_path(model, config):
    return cudagraphs.fast_path(model, config=config)


def compiled(model, config):
    return torch.compile(model, backend=cudagraphs.backend(config))


def graphed(model, config):
    return cudagraphs.graphed(model, (batches(next(model.parameters()).device)[0],), config=config)


def trains(run, x):
    out = run(x)
    if out.requires_grad:
        out.sum().backward()
    return out.detach()


ENTRIES = {
    "fast_path": (fast_path, {}),
    "compiled": (compiled, {}),
    "compiled, in place": (compiled, {"gradients": "in_place"}),
    "graphed": (graphed, {}),
    "graphed, in place": (graphed, {"gradients": "in_place"}),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_results_are_those_without_verification(device, entry):
    record, options = ENTRIES[entry]
    model = Model(device)
    results = []
    for verify in (0, 2):
        cudagraphs.reset()
        torch._dynamo.reset()
        twin = copy.deepcopy(model)
        run = record(twin, config_for(device, verify=verify, **options))
        torch.manual_seed(2)
        outputs = [trains(run, x) for x in batches(device)]
        results.append([*outputs, *twin.buffers(), *(param.grad for param in twin.parameters() if param.grad is not None)])
        assert (cudagraphs.stats().verified > 0) == (verify > 0)
    torch.testing.assert_close(*results)


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_training_step_is_verified(device, accumulate):
    model = Model(device)
    results = []
    for verify in (0, 2):
        twin = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1, fused=device == "cuda", capturable=device == "cuda")
        if device == "cpu":
            optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
        step = cudagraphs.train_step(
            lambda x, twin=twin: twin(x).square().mean(),
            twin.parameters(),
            optimizer=optimizer,
            accumulate=accumulate,
            config=config_for(device, verify=verify),
        )
        torch.manual_seed(2)
        results.append([*(step(x) for x in batches(device, 12)), *twin.parameters(), *twin.buffers()])
    assert cudagraphs.stats().verified == 2 * accumulate
    torch.testing.assert_close(*results)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("entry", ["fast_path", "graphed", "train_step"])
def test_a_value_that_no_check_sees_is_found(device, entry):
    model = nn.Linear(4, 4).to(device)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner(x) * hidden_factor()

    scaled, config = Scaled(), config_for(device, verify=4)
    if entry == "train_step":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = cudagraphs.train_step(lambda x: scaled(x).sum(), model.parameters(), optimizer=optimizer, config=config)
    else:
        run = {"fast_path": fast_path, "graphed": graphed}[entry](scaled, config)
    x = batches(device)[0]
    for _ in range(3):
        run(x)
    Hidden.factor = 2.0
    before = model.weight.detach().clone()
    with pytest.raises(
        ReplayDiffers, match=r"replay \d of the .* differs from an uncaptured run of the same call: result 0"
    ) as error:
        run(x)
    assert isinstance(error.value, AssertionError)
    if entry == "train_step":
        torch.testing.assert_close(model.weight, before - 0.1 * 2.0 * x.sum(0).expand(4, 4))  # as after the uncaptured run


def test_a_function_that_is_not_deterministic_is_named(device):
    layer, config = nn.Identity(), config_for(device, verify=1)
    run = cudagraphs.fast_path(lambda x: layer(x + time_in_ns() % 1000), unsafe_skip_checks=True, config=config)
    words = "cannot be verified, and no later replay is compared: two uncaptured runs of the same call differ .*: result 0"
    with pytest.warns(DynxWarning, match=words):
        _ = [run(torch.ones(4, device=device)) for _ in range(4)]


def time_in_ns():
    time.sleep(0.000_01)
    return time.perf_counter_ns()


@pytest.mark.usefixtures("hidden")
def test_verification_ends_after_n_replays(device):
    model = nn.Linear(4, 4).to(device)
    run = cudagraphs.fast_path(lambda x: model(x) * hidden_factor(), config=config_for(device, verify=2))
    x = batches(device)[0]
    for _ in range(3):
        run(x)
    assert cudagraphs.stats().verified == 2
    Hidden.factor = 2.0
    torch.testing.assert_close(run(x), model(x))  # a stale value, and nobody looks


def test_the_environment_turns_it_on(monkeypatch):
    monkeypatch.setenv("DYNX_CUDAGRAPH_VERIFY", "3")
    assert (cudagraphs.Config().verify, cudagraphs.Config(verify=1).verify) == (3, 1)
    monkeypatch.setenv("DYNX_CUDAGRAPH_VERIFY", "many")
    with pytest.raises(UsageError, match="DYNX_CUDAGRAPH_VERIFY=many is not a number of replays"):
        cudagraphs.Config()


def test_gradients_that_the_function_makes_are_those_of_the_replay(device):
    """An uncaptured run assigns new tensors to `.grad`, which replays would not write to."""
    model = nn.Linear(4, 1).to(device)
    results = []
    for verify in (0, 2):
        twin = copy.deepcopy(model)

        @torch.enable_grad()
        def adapt(x, twin=twin):
            twin.zero_grad()
            twin(x).square().mean().backward()
            return x + 1

        run = cudagraphs.fast_path(adapt, unsafe_skip_checks=True, config=config_for(device, verify=verify))
        results.append([(run(x), twin.bias.grad.clone())[1] for x in batches(device)])
    torch.testing.assert_close(*results)


@pytest.mark.slow
@pytest.mark.usefixtures("hidden")
def test_a_difference_ends_the_phase_of_an_accumulated_step(device):
    model = nn.Linear(4, 1).to(device)
    twin = copy.deepcopy(model)
    step = cudagraphs.train_step(
        lambda x: (model(x) * hidden_factor()).square().mean(),
        model.parameters(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        accumulate=2,
        config=config_for(device, verify=6),
    )
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for number, x in enumerate(batches(device, 10)):
        Hidden.factor = 2.0 if number == 5 else 1.0
        if number % 2 == 0:
            optimizer.zero_grad()
        (twin(x) * hidden_factor()).square().mean().backward()
        if number % 2:
            optimizer.step()
        if number == 5:
            with pytest.raises(ReplayDiffers):
                step(x)
        else:
            step(x)
        torch.testing.assert_close(model.weight, twin.weight)


def test_random_numbers_that_are_drawn_otherwise_are_a_difference():
    """The state of the CPU's generator has more elements than its text shows."""
    before = RandomStates.of_now([])
    torch.rand(1)
    after = RandomStates.of_now([])
    before.put_back()
    effects = [Effects([], Bytes([]), states, Bytes([]), before) for states in (before, after)]
    assert list(differences(*effects)) == ["the RNG state of torch for the CPU differs"]


def test_a_negative_number_is_refused():
    with pytest.raises(UsageError, match="verify=-1 is not a number of replays"):
        cudagraphs.Config(verify=-1)
