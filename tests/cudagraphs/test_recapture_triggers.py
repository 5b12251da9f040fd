"""A call that a recording would repeat wrongly triggers a recapture, runs uncaptured with a warning, or raises."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import dataclass

import pytest
import torch
from support.agreement import assert_agree
from support.configs import config_for
from support.models import linear
from torch import nn
from torch.nn.functional import batch_norm

from dynx import cudagraphs
from dynx.errors import DynxWarning

# arguments


OVERLAPS = {
    "same tensor": lambda x: (x, x),
    "slice": lambda x: (x, x[1:3]),
    "separate": lambda x: (x, x.clone()),
}


IGNORE_OVERLAP_WARNING = pytest.mark.filterwarnings("ignore:.*arguments share memory that it mutates")


@IGNORE_OVERLAP_WARNING
@pytest.mark.parametrize("name", OVERLAPS)
def test_overlapping_mutated_arguments_match_eager(device, inputs, name):
    model = linear(device)

    def mutate(a, b):
        a.add_(1)
        return model(b)

    run = cudagraphs.fast_path(mutate, config=config_for(device, inputs=inputs))
    assert_agree(run, mutate, lambda: OVERLAPS["separate"](torch.randn(3, 3, device=device)))
    assert_agree(run, mutate, lambda: OVERLAPS[name](torch.randn(3, 3, device=device)))


def test_arguments_that_share_storage_are_replayed_if_only_buffers_are_mutated(device):
    model = nn.BatchNorm1d(3).to(device)
    run = cudagraphs.fast_path(lambda a, b: model(a) + model(b), config=config_for(device))
    for _ in range(5):
        run(*torch.randn(8, 3, device=device).chunk(2))
    assert cudagraphs.stats().replays == 4


@pytest.mark.uncaptured
@IGNORE_OVERLAP_WARNING
def test_mutated_argument_that_aliases_a_parameter_matches_eager(device):
    model = linear(device)

    def mutate(weight, x):
        weight.mul_(2)
        return model(x)

    twin = copy.deepcopy(model)
    run = cudagraphs.fast_path(mutate, config=config_for(device))
    x = torch.ones(2, 3, device=device)
    for _ in range(5):
        actual = run(model.weight.detach(), x)
        with torch.no_grad():
            twin.weight.mul_(2)
            torch.testing.assert_close(actual, twin(x))


@dataclass
class Result:
    y: torch.Tensor


class Scale:
    factor = 1.0


@pytest.mark.uncaptured
def test_functions_that_return_unknown_types_run_uncaptured(device):
    model = linear(device)
    run = cudagraphs.fast_path(lambda x: Result(model(x)), config=config_for(device))
    with pytest.warns(
        DynxWarning,
        match="runs uncaptured: the function returns an object of type Result, which a replay would not create again$",
    ):
        run(torch.ones(2, 3, device=device))
    for number in range(3):
        x = torch.full((2, 3), float(number), device=device)
        torch.testing.assert_close(run(x).y, model(x).detach())


@pytest.mark.uncaptured
def test_calls_with_arguments_of_unknown_types_run_uncaptured(device):
    model, scale = linear(device), Scale()
    run = cudagraphs.fast_path(lambda x, scale: model(x) * scale.factor, config=config_for(device))
    x = torch.ones(2, 3, device=device)
    with pytest.warns(DynxWarning, match="runs uncaptured: argument scale is of type Scale, whose changes cannot be detected"):
        run(x, scale)
    for number in range(4):
        scale.factor = float(number)
        torch.testing.assert_close(run(x, scale), model(x).detach() * number)


def test_each_value_of_a_numpy_scalar_argument_gets_its_own_recording(device):
    numpy = pytest.importorskip("numpy", reason="needs NumPy")
    run = cudagraphs.fast_path(lambda x, factor: x * float(factor), unsafe_skip_checks=True, config=config_for(device))
    x = torch.ones(2, device=device)
    for factor in (1, 1, 2, 2, 1, 2):
        assert run(x, numpy.float32(factor)).tolist() == [factor] * 2
    assert cudagraphs.stats().recordings == 2


@pytest.mark.uncaptured
def test_functions_that_mutate_container_arguments_run_uncaptured(device):
    model = linear(device)

    def fill(x, cache):
        cache["k"] = model(x)
        return x + 1

    run = cudagraphs.fast_path(fill, config=config_for(device))
    x = torch.ones(2, 3, device=device)
    with pytest.warns(
        DynxWarning, match="the function changes the containers among its arguments, which a replay would not do$"
    ):
        run(x, {})
    for _ in range(3):
        run(x, cache := {})
        assert list(cache) == ["k"]


@pytest.mark.uncaptured
def test_functions_that_mutate_tensor_metadata_run_uncaptured(device):
    run = cudagraphs.fast_path(lambda x: x.t_() + 1, unsafe_skip_checks=True, config=config_for(device))
    with pytest.warns(DynxWarning, match="the function changes the containers among its arguments"):
        assert_agree(run, lambda x: x.t_() + 1, lambda: (torch.randn(2, 3, device=device),))


def test_mutations_missing_from_the_operator_schema_match_eager(device):
    model = linear(device)

    def normalized(x, mean, variance):
        return model(batch_norm(x, mean, variance, training=True))

    def make_args():
        return torch.randn(2, 3, device=device), torch.zeros(3, device=device), torch.ones(3, device=device)

    assert_agree(cudagraphs.fast_path(normalized, config=config_for(device)), normalized, make_args)


@pytest.mark.uncaptured
def test_calls_with_sparse_arguments_run_uncaptured(device):
    model = linear(device)
    run = cudagraphs.fast_path(lambda x: model(x.to_dense()), config=config_for(device))
    x = torch.eye(3, device=device).to_sparse()
    with pytest.warns(DynxWarning, match="runs uncaptured: argument x is a sparse tensor$"):
        run(x)
    torch.testing.assert_close(run(x), model(x.to_dense()).detach())


class Mode:
    def __init__(self, writes):
        self.writes = writes


def test_new_object_at_the_address_of_a_freed_object_is_checked_again(device):
    """The recording for the freed object does not hold for a new object with the same `id`."""
    model = linear(device)

    def mutate(x):
        if model.mode.writes:
            x.add_(1)
        return model(x)

    run = cudagraphs.fast_path(mutate, config=config_for(device))
    for writes in (False, True, False, True):
        model.mode = None  # frees the last Mode
        model.mode = Mode(writes)
        for _ in range(3):
            x = torch.zeros(2, 3, device=device)
            run(x)
            assert x[0, 0] == writes


# modules


def test_graphed_gradients_match_requires_grad_after_freezing_and_unfreezing_layers(device):
    model = nn.Sequential(linear(device), linear(device, 1))
    cudagraphs.graphed(model, (torch.ones(2, 3, device=device),), config=config_for(device))
    for requires_grad in (False, True, False, True):
        model[0].requires_grad_(requires_grad)
        for _ in range(3):
            model.zero_grad()
            model(torch.ones(2, 3, device=device)).sum().backward()
            assert (model[0].weight.grad is not None) == requires_grad


def test_parameter_with_new_strides_at_the_same_address_matches_eager(device):
    model = linear(device)
    run = cudagraphs.fast_path(model, config=config_for(device))
    x = torch.ones(2, 3, device=device)
    for _ in range(3):
        run(x)
    model.weight.data = model.weight.data.t()
    model.train()  # any change of the module makes its state be checked again
    model.eval()
    torch.testing.assert_close(run(x), model(x).detach())


def test_fast_path_accepts_a_lazy_module(device):
    run = cudagraphs.fast_path(nn.LazyLinear(2).to(device), config=config_for(device))
    for _ in range(4):
        assert run(torch.ones(2, 3, device=device)).shape == (2, 2)


@pytest.mark.parametrize("copy_with", ["deepcopy", "pickle"])
def test_copied_fast_path_uses_the_copied_modules(device, copy_with):
    encoding = Encoding
    model = encoding(device)
    x = torch.ones(2, 3, device=device)
    for _ in range(3):
        model.fast(x)
    twin = copy.deepcopy(model) if copy_with == "deepcopy" else pickle.loads(pickle.dumps(model))
    nn.init.zeros_(twin.layer.weight)
    nn.init.zeros_(twin.layer.bias)
    assert twin.fast(x).abs().sum() == 0
    assert model.fast(x).abs().sum() > 0


class Encoding(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.layer = linear(device)
        self.fast = cudagraphs.fast_path(self.encode, config=config_for(device))

    def encode(self, x):
        return self.layer(x)


@pytest.mark.uncaptured
def test_module_forward_is_restored_if_graphed_raises(device):
    model = linear(device)
    model.forward = forward = lambda x: nn.functional.linear(x, model.weight)
    x = torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        cudagraphs.graphed(model, (torch.ones(2, 4, device=device),), config=config_for(device))
    assert model.forward is forward
    graphed_first = linear(device)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        cudagraphs.graphed((graphed_first, model), ((x,), (torch.ones(2, 4, device=device),)), config=config_for(device))
    assert "forward" not in vars(graphed_first)


@pytest.mark.parametrize("path", ["graphed", "in_place"])
def test_each_replay_updates_batch_norm_statistics_once(device, inputs, path):
    model = nn.Sequential(linear(device), nn.BatchNorm1d(3), linear(device)).to(device)
    twin = copy.deepcopy(model)
    x = torch.arange(6.0, device=device).view(2, 3)
    config = config_for(device, inputs=inputs, gradients="in_place" if path == "in_place" else "autograd")
    if path == "graphed":
        run = cudagraphs.graphed(model, (x,), config=config, warmup=3)
    else:
        run = torch.compile(model, backend=cudagraphs.backend(config))
    for number in range(4):
        with torch.set_grad_enabled(number % 2 == 1 or path == "in_place"):
            torch.testing.assert_close(run(x + number), twin(x + number))
    assert model[1].num_batches_tracked == twin[1].num_batches_tracked
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)


# buckets and recordings


def test_inputs_padded_to_a_bucket_are_mutated_as_in_eager(device):
    model = linear(device)

    def mutate(x):
        x.add_(1)
        return model(x)

    run = cudagraphs.fast_path(mutate, config=config_for(device, buckets={0: (2, 4)}))
    for rows in (3, 4, 1, 2, 3, 3):
        assert_agree(run, mutate, lambda rows=rows: (torch.randn(rows, 3, device=device),), calls=2)


def test_buckets_of_the_last_dimension_need_no_recapture(device):
    run = cudagraphs.fast_path(
        torch.sin,
        torch.ones(2, 3, 8, device=device),
        unsafe_skip_checks=True,
        config=config_for(device, buckets={2: (2, 4, 8)}),
    )
    assert cudagraphs.stats().recordings == 3
    for size in range(1, 9):
        x = torch.rand(2, 3, size, device=device)
        torch.testing.assert_close(run(x), x.sin())
    assert cudagraphs.stats().recordings == 3


def test_fast_path_works_after_a_failed_capture_at_the_recording_limit(device):
    def reads(x):
        return x * x.sum().item() if len(x) == 3 else x + 1

    run = cudagraphs.fast_path(reads, unsafe_skip_checks=True, config=config_for(device, max_recordings=1, on_limit="lru"))
    two, three = torch.ones(2, device=device), torch.ones(3, device=device)
    for _ in range(3):
        run(two)
    run(three)
    with pytest.warns(DynxWarning, match="runs uncaptured"):
        run(three)
    assert run(two).tolist() == [2.0, 2.0]


@pytest.mark.slow
def test_recordings_dropped_at_the_limit_are_freed(device):
    model = linear(device)
    run = cudagraphs.graphed(
        model, (torch.ones(1, 3, device=device),), config=config_for(device, max_recordings=2, on_limit="lru")
    )
    alive = weakref.WeakSet()
    for rows in (1, 2, 3, 4, 3, 4, 2, 1, 2, 1):
        for _ in range(3):
            run(torch.ones(rows, 3, device=device)).sum().backward()
        alive.update(run.forward.recordings)
        assert len(run.forward.recordings) <= 2
    gc.collect()
    assert len(alive) <= 3, "the two that are cached, and the last one used"
    run.forward.close()
    gc.collect()
    assert not alive


@pytest.mark.parametrize("params", ["rerecord", "patch"])
def test_each_alternating_batch_size_gets_one_recording(device, params):
    model = linear(device)
    run = cudagraphs.fast_path(model, config=config_for(device, params=params))
    for rows in [1, 2, 3] * 5:
        x = torch.rand(rows, 3, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
    assert len(run.recordings) == 3
    model.weight.data = torch.zeros_like(model.weight)
    for rows in [1, 2, 3] * 3:
        x = torch.rand(rows, 3, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
