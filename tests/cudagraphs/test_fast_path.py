"""A fast path returns what the function returns, and re-records when what the function depends on changes."""

from __future__ import annotations

import pytest
import torch
from support.agreement import assert_agree
from support.configs import config_for
from support.devices import on_cuda

from dynx import cudagraphs
from dynx.errors import CaptureError, DynxWarning, UsageError

LAYER = torch.nn.Identity()


@pytest.fixture
def model(device):
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)
    return torch.nn.Sequential(*layers).to(device).eval()


@pytest.fixture
def make_path(device, inputs):
    def make(function, *examples, unsafe_skip_checks=False, **options):
        config = config_for(device, inputs=inputs, **options)
        return cudagraphs.fast_path(function, *examples, unsafe_skip_checks=unsafe_skip_checks, config=config)

    return make


def random_batch(device, rows=3):
    return torch.randn(rows, 4, device=device)


def agree(run, function, device, calls=3, rows=3):
    assert_agree(run, function, lambda: (random_batch(device, rows),), calls=calls)


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
@pytest.mark.parametrize("unsafe_skip_checks", [False, True])
def test_fast_path_replays_match_eager(make_path, device, model, outputs, unsafe_skip_checks):
    run = make_path(model, random_batch(device), outputs=outputs, unsafe_skip_checks=unsafe_skip_checks)
    agree(run, model, device, 5)
    stats = cudagraphs.stats()
    assert (stats.recordings, stats.replays, stats.uncaptured) == (1, 5, 1)
    assert not run(random_batch(device)).requires_grad


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


@pytest.mark.parametrize("change", CHANGES, ids=lambda function: function.__name__)
def test_module_changes_trigger_a_recapture(make_path, device, model, change):
    run = make_path(model, random_batch(device))
    agree(run, model, device)
    change(model)
    agree(run, model, device)
    assert cudagraphs.stats().recordings == 2


def test_unsafe_skip_checks_ignores_replaced_layers(make_path, device, model):
    run = make_path(model, random_batch(device), unsafe_skip_checks=True)
    x = random_batch(device)
    before = run(x)
    replaced, model[3] = model[3], torch.nn.Identity()
    torch.testing.assert_close(run(x), before)
    assert replaced is not model[3]
    model[0].weight.data.fill_(1)  # in place
    assert not torch.equal(run(x), before)


def test_train_and_eval_mode_get_separate_recordings(make_path, device, model):
    run = make_path(model, random_batch(device))
    for _ in range(3):
        agree(run, model.eval(), device)
        model.train()
        for step in range(3):
            x = random_batch(device)
            torch.manual_seed(step)
            actual = run(x)
            torch.manual_seed(step)
            torch.testing.assert_close(actual, model(x))
    assert cudagraphs.stats().recordings == 2


def test_calls_with_and_without_autocast_get_separate_recordings(make_path, device, model):
    run = make_path(model, random_batch(device))
    for _ in range(2):
        for enabled in (True, False):
            with torch.autocast(device, torch.bfloat16, enabled=enabled):
                agree(run, model, device)
    assert cudagraphs.stats().recordings == 2


def test_each_input_size_and_stride_gets_its_own_recording(make_path, device, model):
    run = make_path(model, random_batch(device))
    for rows in (3, 2, 5, 3, 2, 5):
        agree(run, model, device, rows=rows)
    assert cudagraphs.stats().recordings == 3
    x = torch.randn(4, 3, device=device).t()
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x))
    assert cudagraphs.stats().recordings == 4


def test_fast_path_matches_eager_inside_and_outside_inference_mode(make_path, device, model):
    run = make_path(model, random_batch(device))
    for _ in range(3):
        with torch.inference_mode():
            agree(run, model, device)
        agree(run, model, device)


def test_fast_path_accepts_keyword_arguments_containers_and_numbers(make_path, device, model):
    def function(batch, *, scale, mode=None):
        out = {"y": model(batch["x"]) * scale + batch["shift"], "mode": mode}
        return out["y"].sum(0), out

    run = make_path(function)
    for scale in (2, 3, 2, 3, 2, 3):
        batch = {"x": random_batch(device), "shift": random_batch(device)}
        torch.testing.assert_close(run(batch, scale=scale, mode=1.5), function(batch, scale=scale, mode=1.5))
    assert (cudagraphs.stats().recordings, cudagraphs.stats().replays) == (2, 4)


def test_equal_numbers_of_different_type_or_sign_get_separate_recordings(make_path, device):
    run = make_path(lambda x, number: x / number, unsafe_skip_checks=True)
    for number in (0.0, -0.0, float("nan"), True, 1, 1.0) * 3:
        x = random_batch(device)
        torch.testing.assert_close(run(x, number), x / number, equal_nan=True)
    assert cudagraphs.stats().recordings == 6


def test_function_that_calls_its_own_fast_path_matches_eager(make_path, device):
    def double(x, times):
        return x if times == 0 else run(x * 2, times - 1)

    run = make_path(double, unsafe_skip_checks=True)
    for _ in range(4):
        x = random_batch(device)
        torch.testing.assert_close(run(x, 3), x * 8)


def test_rebinding_a_closure_variable_triggers_a_recapture(make_path, device):
    layer, other = (torch.nn.Linear(4, 4).to(device) for _ in range(2))
    run = make_path(lambda x: layer(x))  # noqa: F821
    agree(run, layer, device)
    before, layer = layer, other
    agree(run, other, device)
    layer = before
    agree(run, before, device)
    assert cudagraphs.stats().recordings == 2
    del layer
    with pytest.raises(NameError):
        run(random_batch(device))


class EqualToOthers(torch.nn.Linear):
    def __eq__(self, other):
        return isinstance(other, EqualToOthers)

    __hash__ = torch.nn.Module.__hash__


def test_fast_path_compares_modules_by_identity_instead_of_equality(make_path, device):
    layer = EqualToOthers(4, 4).to(device)
    run = make_path(lambda x: layer(x))
    agree(run, layer, device)
    layer = EqualToOthers(4, 4).to(device)
    agree(run, layer, device)


def test_fast_path_of_a_recursive_function_matches_eager(make_path, device, model):
    def run(x):
        return model(x) if x.dim() == 2 else run(x[0])

    run = make_path(run)
    for _ in range(3):
        x = random_batch(device)
        torch.testing.assert_close(run(x[None]), model(x))


def test_rebinding_a_global_triggers_a_recapture(make_path, device, monkeypatch):
    for number in range(3):
        monkeypatch.setitem(globals(), "LAYER", torch.nn.Linear(4, 4).to(device))
        if number == 0:
            run = make_path(lambda x: LAYER(x))
        agree(run, LAYER, device)
    assert cudagraphs.stats().recordings == 3


def test_fast_path_of_a_function_with_an_unbound_closure_variable_raises(make_path, device):
    with pytest.raises(UsageError, match="later, which <lambda> uses, has no value yet, so its changes cannot be detected\n"):
        make_path(lambda x: later(x))
    later = torch.nn.Linear(4, 4).to(device)
    agree(make_path(lambda x: later(x)), later, device)


def test_fast_path_mutates_its_arguments_as_in_eager(make_path, device, model):
    run = make_path(
        lambda x, counter: (counter.add_(1), model(x.mul_(2)))[1], random_batch(device), torch.zeros(1, device=device)
    )
    counter, expected = torch.zeros(1, device=device), torch.zeros(1, device=device)
    for _ in range(3):
        x = random_batch(device)
        y = model(x * 2)
        expected += 1
        torch.testing.assert_close(run(x, counter), y)
        torch.testing.assert_close(counter, expected)


def test_fast_paths_of_methods_and_closures_use_replaced_weights(make_path, device, model):
    class Owner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def predict(self, x):
            return self.inner(x) + 1

    owner = Owner()
    for function in (owner.predict, lambda x: owner.inner(x) + 1):
        run = make_path(function, random_batch(device))
        agree(run, function, device)
        change_weight(model)
        agree(run, function, device)


@on_cuda
def test_fast_path_compiles_once_with_the_inner_backend(make_path, device, model):
    torch._dynamo.utils.counters["stats"].clear()
    agree(make_path(model, random_batch(device), inner="inductor"), model, device)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert cudagraphs.stats().replays == 3


@pytest.mark.uncaptured
def test_module_state_that_changes_on_every_call_warns(make_path, device, model):
    def count(module, args):
        module.calls += 1

    model[0].calls = 0
    run = make_path(model, random_batch(device), max_recordings=2)

    def from_outside(x):
        model[0].calls += 1
        return run(x)

    with pytest.warns(DynxWarning, match="since attribute calls of a Linear changes"):
        agree(from_outside, model, device, 5)
    model[0].register_forward_pre_hook(count)
    with pytest.warns(DynxWarning, match="runs uncaptured: the function changes attribute calls of a Linear,"):
        agree(run, model, device, 5)


def test_on_limit_lru_drops_the_least_recently_used_recording(device):
    model = torch.nn.Linear(4, 4).to(device)
    config = config_for(device, max_recordings=2, on_limit="lru")
    run = cudagraphs.fast_path(model, config=config)
    for rows in (2, 2, 3, 3, 2, 5, 5, 2):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
    assert cudagraphs.stats().recordings == 3, "the one for 3 rows was dropped"


def test_more_input_sizes_than_max_recordings_warn(make_path, device, model):
    run = make_path(model, random_batch(device), max_recordings=2)
    agree(run, model, device, rows=2)
    with pytest.warns(
        DynxWarning, match="the fast path of Sequential needs more than 2 recordings: they differ in its arguments"
    ):
        agree(run, model, device, rows=4)


@pytest.mark.uncaptured
def test_fast_path_runs_uncaptured_after_a_failed_capture(make_path, device, model):
    def function(x):
        return model(x) * x.sum().item()

    with pytest.warns(DynxWarning, match="the fast path of function runs uncaptured"):
        run = make_path(function, random_batch(device))
    agree(run, function, device)
    with pytest.raises(CaptureError):
        make_path(function, random_batch(device), or_error=True)


@pytest.mark.uncaptured
def test_fast_path_raises_for_unsupported_functions_and_inputs(make_path, device):
    with pytest.raises(UsageError, match=r"found no nn.Module that sin uses(.|\n)*unsafe_skip_checks=True"):
        make_path(torch.sin, random_batch(device))
    run = make_path(torch.nn.Linear(2, 2, device=device))
    with pytest.raises(UsageError, match=r"argument input of the fast path of Linear is on meta"):
        run(torch.ones(1, 2, device="meta"))


def test_fast_path_matches_eager_after_close_and_reset(make_path, device, model):
    run = make_path(model, random_batch(device))
    run.close()
    agree(run, model, device)
    cudagraphs.reset()
    agree(run, model, device)


@pytest.mark.uncaptured
def test_fast_path_warns_without_a_cuda_device(monkeypatch, model):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    with pytest.warns(DynxWarning, match="no CUDA device: the fast path of Linear runs uncaptured"):
        run = cudagraphs.fast_path(torch.nn.Linear(2, 2))
    assert run(torch.ones(1, 2)).shape == (1, 2)
