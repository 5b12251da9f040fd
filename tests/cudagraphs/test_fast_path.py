"""A fast path gives what the function gives, until what it depends on changes; then it records anew."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES

from dynx import cudagraphs
from dynx.errors import CaptureError, DynxWarning, UsageError

LAYER = torch.nn.Identity()


@pytest.fixture
def model(device):
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)
    return torch.nn.Sequential(*layers).to(device).eval()


@pytest.fixture
def path(device, inputs):
    def make(function, *examples, frozen=False, **config):
        config = cudagraphs.Config(runtime=RUNTIMES[device], inputs=inputs, **config)
        return cudagraphs.fast_path(function, *examples, frozen=frozen, config=config)

    return make


def some(device, rows=3):
    return torch.randn(rows, 4, device=device)


def agree(run, function, device, calls=3, rows=3):
    with torch.no_grad():
        for _ in range(calls):
            x = some(device, rows)
            torch.testing.assert_close(run(x), function(x))


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
@pytest.mark.parametrize("frozen", [False, True])
def test_each_call_gives_what_its_arguments_make(path, device, model, outputs, frozen):
    run = path(model, some(device), outputs=outputs, frozen=frozen)
    agree(run, model, device, 5)
    stats = cudagraphs.stats()
    assert (stats.recordings, stats.replays, stats.uncaptured) == (1, 5, 1)
    assert not run(some(device)).requires_grad


def change_weight(model):
    model[0].weight = torch.nn.Parameter(torch.ones_like(model[0].weight))


def change_data(model):
    model[0].weight.data = torch.ones_like(model[0].weight)


def change_buffer(model):
    model[1].running_mean = torch.ones_like(model[1].running_mean)


def change_layer(model):
    model[3] = torch.nn.Identity()


def add_hook(model):
    model[0].register_forward_hook(lambda module, args, output: output * 2)


def add_pre_hook(model):
    model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def change_number(model):
    model[1].eps = 0.5


CHANGES = [change_weight, change_data, change_buffer, change_layer, add_hook, add_pre_hook, change_number]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_what_changes_in_the_module_is_noticed(path, device, model, change):
    run = path(model, some(device))
    agree(run, model, device)
    change(model)
    agree(run, model, device)
    assert cudagraphs.stats().recordings == 2


def test_frozen_looks_at_arguments_only(path, device, model):
    run = path(model, some(device), frozen=True)
    x = some(device)
    before = run(x)
    replaced, model[3] = model[3], torch.nn.Identity()
    torch.testing.assert_close(run(x), before)
    assert replaced is not model[3]
    model[0].weight.data.fill_(1)  # where it lies
    assert not torch.equal(run(x), before)


def test_train_and_eval_have_recordings_of_their_own(path, device, model):
    run = path(model, some(device))
    for _ in range(3):
        agree(run, model.eval(), device)
        model.train()
        for step in range(3):
            x = some(device)
            torch.manual_seed(step)
            found = run(x)
            torch.manual_seed(step)
            torch.testing.assert_close(found, model(x))
    assert cudagraphs.stats().recordings == 2


def test_autocast_is_noticed(path, device, model):
    run = path(model, some(device))
    for _ in range(2):
        for enabled in (True, False):
            with torch.autocast(device, torch.bfloat16, enabled=enabled):
                agree(run, model, device)
    assert cudagraphs.stats().recordings == 2


def test_layouts_have_recordings_of_their_own(path, device, model):
    run = path(model, some(device))
    for rows in (3, 2, 5, 3, 2, 5):
        agree(run, model, device, rows=rows)
    assert cudagraphs.stats().recordings == 3
    x = torch.randn(4, 3, device=device).t()
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x))
    assert cudagraphs.stats().recordings == 4


def test_inference_mode_is_another_layout(path, device, model):
    run = path(model, some(device))
    for _ in range(3):
        with torch.inference_mode():
            agree(run, model, device)
        agree(run, model, device)


def test_keywords_containers_and_numbers(path, device, model):
    def function(batch, *, scale, mode=None):
        out = {"y": model(batch["x"]) * scale + batch["shift"], "mode": mode}
        return out["y"].sum(0), out

    run = path(function)
    for scale in (2, 3, 2, 3, 2, 3):
        batch = {"x": some(device), "shift": some(device)}
        torch.testing.assert_close(run(batch, scale=scale, mode=1.5), function(batch, scale=scale, mode=1.5))
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 4)


def test_numbers_that_look_alike(path, device):
    run = path(lambda x, number: x / number, frozen=True)
    for number in (0.0, -0.0, float("nan"), True, 1, 1.0) * 3:
        x = some(device)
        torch.testing.assert_close(run(x, number), x / number, equal_nan=True)
    assert cudagraphs.stats().recordings == 6


def test_a_function_that_calls_itself(path, device):
    def double(x, times):
        return x if times == 0 else run(x * 2, times - 1)

    run = path(double, frozen=True)
    for _ in range(4):
        x = some(device)
        torch.testing.assert_close(run(x, 3), x * 8)


def test_names_of_modules_that_are_bound_to_others(path, device):
    layer, other = (torch.nn.Linear(4, 4).to(device) for _ in range(2))
    run = path(lambda x: layer(x))  # noqa: F821
    agree(run, layer, device)
    before, layer = layer, other
    agree(run, other, device)
    layer = before
    agree(run, before, device)
    assert cudagraphs.stats().recordings == 2
    del layer
    with pytest.raises(NameError):
        run(some(device))


class Alike(torch.nn.Linear):
    def __eq__(self, other):
        return isinstance(other, Alike)

    __hash__ = torch.nn.Module.__hash__


def test_modules_that_say_they_are_equal(path, device):
    layer = Alike(4, 4).to(device)
    run = path(lambda x: layer(x))
    agree(run, layer, device)
    layer = Alike(4, 4).to(device)
    agree(run, layer, device)


def test_a_function_that_knows_itself(path, device, model):
    def run(x):
        return model(x) if x.dim() == 2 else run(x[0])

    run = path(run)
    for _ in range(3):
        x = some(device)
        torch.testing.assert_close(run(x[None]), model(x))


def test_globals_that_are_bound_to_others(path, device, monkeypatch):
    for number in range(3):
        monkeypatch.setitem(globals(), "LAYER", torch.nn.Linear(4, 4).to(device))
        if number == 0:
            run = path(lambda x: LAYER(x))
        agree(run, LAYER, device)
    assert cudagraphs.stats().recordings == 3


def test_a_variable_without_a_value_is_told(path, device):
    with pytest.raises(UsageError, match="later, which <lambda> uses, has no value yet, so it cannot be checked\n"):
        path(lambda x: later(x))
    later = torch.nn.Linear(4, 4).to(device)
    agree(path(lambda x: later(x)), later, device)


def test_arguments_that_are_changed(path, device, model):
    run = path(lambda x, counter: (counter.add_(1), model(x.mul_(2)))[1], some(device), torch.zeros(1, device=device))
    counter, expected = torch.zeros(1, device=device), torch.zeros(1, device=device)
    for _ in range(3):
        x = some(device)
        y = model(x * 2)
        expected += 1
        torch.testing.assert_close(run(x, counter), y)
        torch.testing.assert_close(counter, expected)


def test_methods_and_functions_that_close_over_modules(path, device, model):
    class Owner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def predict(self, x):
            return self.inner(x) + 1

    owner = Owner()
    for function in (owner.predict, lambda x: owner.inner(x) + 1):
        run = path(function, some(device))
        agree(run, function, device)
        change_weight(model)
        agree(run, function, device)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_inner_is_compiled(path, device, model):
    torch._dynamo.utils.counters["stats"].clear()
    agree(path(model, some(device), inner="inductor"), model, device)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert cudagraphs.stats().replays == 3


@pytest.mark.uncaptured
def test_what_is_never_the_same_is_told(path, device, model):
    def count(module, args):
        module.calls += 1

    model[0].calls = 0
    run = path(model, some(device), max_recordings=2)

    def from_outside(x):
        model[0].calls += 1
        return run(x)

    with pytest.warns(DynxWarning, match="never called twice alike: calls of a Linear changes"):
        agree(from_outside, model, device, 5)
    model[0].register_forward_pre_hook(count)
    with pytest.warns(DynxWarning, match="runs uncaptured: it changes calls of a Linear itself"):
        agree(run, model, device, 5)


def test_the_recording_that_was_used_last_is_kept(device):
    model = torch.nn.Linear(4, 4).to(device)
    config = cudagraphs.Config(runtime=RUNTIMES[device], max_recordings=2, on_limit="lru")
    run = cudagraphs.fast_path(model, config=config)
    for rows in (2, 2, 3, 3, 2, 5, 5, 2):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
    assert cudagraphs.stats().recordings == 3, "that of 3 rows made room"


def test_more_layouts_than_allowed_are_told(path, device, model):
    run = path(model, some(device), max_recordings=2)
    agree(run, model, device, rows=2)
    with pytest.warns(DynxWarning, match="the fast path of Sequential needs more than 2 recordings: its arguments"):
        agree(run, model, device, rows=4)


@pytest.mark.uncaptured
def test_what_cannot_be_captured_is_run_as_it_is(path, device, model):
    def function(x):
        return model(x) * x.sum().item()

    with pytest.warns(DynxWarning, match="the fast path of function runs uncaptured"):
        run = path(function, some(device))
    agree(run, function, device)
    with pytest.raises(CaptureError):
        path(function, some(device), or_error=True)


@pytest.mark.uncaptured
def test_what_makes_no_sense_is_told(path, device):
    with pytest.raises(UsageError, match=r"no module is known that sin uses(.|\n)*frozen=True"):
        path(torch.sin, some(device))
    run = path(torch.nn.Linear(2, 2, device=device))
    with pytest.raises(UsageError, match=r"input of the fast path of Linear is on meta"):
        run(torch.ones(1, 2, device="meta"))


def test_it_gives_back_its_memory_and_goes_on(path, device, model):
    run = path(model, some(device))
    run.close()
    agree(run, model, device)
    cudagraphs.reset()
    agree(run, model, device)


@pytest.mark.uncaptured
def test_without_cuda_it_says_so(monkeypatch, model):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    with pytest.warns(DynxWarning, match="no CUDA device: the fast path of Linear runs uncaptured"):
        run = cudagraphs.fast_path(torch.nn.Linear(2, 2))
    assert run(torch.ones(1, 2)).shape == (1, 2)
