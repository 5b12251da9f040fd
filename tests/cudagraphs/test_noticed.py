"""What a recording cannot do again is noticed: it is recorded anew, run as it is with a warning, or refused by name."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import dataclass

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
from torch import nn
from torch.nn.functional import batch_norm

from dynx import cudagraphs
from dynx.errors import DynxWarning


def config(device, **how):
    return cudagraphs.Config(runtime=RUNTIMES[device], **how)


def linear(device, outputs=3):
    torch.manual_seed(0)
    return nn.Linear(3, outputs).to(device)


def alike(run, function, arguments, calls=5):
    """Call both with arguments of their own; results and what became of the arguments have to be the same."""
    for number in range(calls):
        mine, theirs = arguments(number), arguments(number)
        with torch.no_grad():
            found, expected = run(*mine), function(*theirs)
        torch.testing.assert_close(found, expected)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other)


# arguments


OVERLAPS = {
    "the same twice": lambda x: (x, x),
    "a part of it": lambda x: (x, x[1:3]),
    "apart": lambda x: (x, x.clone()),
}


MIXED = pytest.mark.filterwarnings("ignore:.*arguments lie in the same memory as what it changes")


@MIXED
@pytest.mark.parametrize("name", OVERLAPS)
def test_arguments_that_lie_in_the_same_memory(device, inputs, name):
    model = linear(device)

    def change(a, b):
        a.add_(1)
        return model(b)

    run = cudagraphs.fast_path(change, config=config(device, inputs=inputs))
    alike(run, change, lambda number: OVERLAPS["apart"](torch.full((3, 3), float(number), device=device)))
    alike(run, change, lambda number: OVERLAPS[name](torch.full((3, 3), float(number), device=device)))


def test_halves_of_a_batch_are_replayed_where_only_buffers_change(device):
    model = nn.BatchNorm1d(3).to(device)
    run = cudagraphs.fast_path(lambda a, b: model(a) + model(b), config=config(device))
    for _ in range(5):
        run(*torch.randn(8, 3, device=device).chunk(2))
    assert cudagraphs.stats().replays == 4


@pytest.mark.uncaptured
@MIXED
def test_an_argument_that_lies_in_a_parameter(device):
    model = linear(device)

    def change(weight, x):
        weight.mul_(2)
        return model(x)

    twin = copy.deepcopy(model)
    run = cudagraphs.fast_path(change, config=config(device))
    x = torch.ones(2, 3, device=device)
    for _ in range(5):
        found = run(model.weight.detach(), x)
        with torch.no_grad():
            twin.weight.mul_(2)
            torch.testing.assert_close(found, twin(x))


@dataclass
class Result:
    y: torch.Tensor


class Scale:
    factor = 1.0


@pytest.mark.uncaptured
def test_results_of_unknown_kinds(device):
    model = linear(device)
    run = cudagraphs.fast_path(lambda x: Result(model(x)), config=config(device))
    with pytest.warns(DynxWarning, match="runs uncaptured: it gives a Result, which a replay would not make anew$"):
        run(torch.ones(2, 3, device=device))
    for number in range(3):
        x = torch.full((2, 3), float(number), device=device)
        torch.testing.assert_close(run(x).y, model(x).detach())


@pytest.mark.uncaptured
def test_arguments_of_unknown_kinds(device):
    model, scale = linear(device), Scale()
    run = cudagraphs.fast_path(lambda x, scale: model(x) * scale.factor, config=config(device))
    x = torch.ones(2, 3, device=device)
    with pytest.warns(DynxWarning, match="runs uncaptured: scale is a Scale, inside of which a change is not seen"):
        run(x, scale)
    for number in range(4):
        scale.factor = float(number)
        torch.testing.assert_close(run(x, scale), model(x).detach() * number)


def test_numbers_of_other_libraries(device):
    numpy = pytest.importorskip("numpy", reason="needs NumPy")
    run = cudagraphs.fast_path(lambda x, factor: x * float(factor), frozen=True, config=config(device))
    x = torch.ones(2, device=device)
    for factor in (1, 1, 2, 2, 1, 2):
        assert run(x, numpy.float32(factor)).tolist() == [factor] * 2
    assert cudagraphs.stats().recordings == 2


@pytest.mark.uncaptured
def test_containers_that_the_function_fills(device):
    model = linear(device)

    def fill(x, cache):
        cache["k"] = model(x)
        return x + 1

    run = cudagraphs.fast_path(fill, config=config(device))
    x = torch.ones(2, 3, device=device)
    with pytest.warns(DynxWarning, match="it changes what is in its arguments, which a replay would not do$"):
        run(x, {})
    for _ in range(3):
        run(x, cache := {})
        assert list(cache) == ["k"]


@pytest.mark.uncaptured
def test_arguments_that_are_transposed_in_place(device):
    run = cudagraphs.fast_path(lambda x: x.t_() + 1, frozen=True, config=config(device))
    with pytest.warns(DynxWarning, match="it changes what is in its arguments"):
        alike(run, lambda x: x.t_() + 1, lambda number: (torch.full((2, 3), float(number), device=device),))


def test_changes_that_operators_do_not_tell_of(device):
    model = linear(device)

    def normalized(x, mean, variance):
        return model(batch_norm(x, mean, variance, training=True))

    def arguments(number):
        x = torch.arange(6.0, device=device).view(2, 3) * (number + 1)
        return x, torch.zeros(3, device=device), torch.ones(3, device=device)

    alike(cudagraphs.fast_path(normalized, config=config(device)), normalized, arguments)


@pytest.mark.uncaptured
def test_sparse_arguments(device):
    model = linear(device)
    run = cudagraphs.fast_path(lambda x: model(x.to_dense()), config=config(device))
    x = torch.eye(3, device=device).to_sparse()
    with pytest.warns(DynxWarning, match="runs uncaptured: x is a sparse tensor$"):
        run(x)
    torch.testing.assert_close(run(x), model(x.to_dense()).detach())


class Mode:
    def __init__(self, writes):
        self.writes = writes


def test_objects_in_the_place_of_others(device):
    """What a first call showed of one object is not taken for another that was made in its place."""
    model = linear(device)

    def change(x):
        if model.mode.writes:
            x.add_(1)
        return model(x)

    run = cudagraphs.fast_path(change, config=config(device))
    for writes in (False, True, False, True):
        model.mode = None  # which lets go of the last
        model.mode = Mode(writes)
        for _ in range(3):
            x = torch.zeros(2, 3, device=device)
            run(x)
            assert x[0, 0] == writes


# modules


def test_layers_that_are_frozen_and_thawed(device):
    model = nn.Sequential(linear(device), linear(device, 1))
    cudagraphs.graphed(model, (torch.ones(2, 3, device=device),), config=config(device))
    for needs in (False, True, False, True):
        model[0].requires_grad_(needs)
        for _ in range(3):
            model.zero_grad()
            model(torch.ones(2, 3, device=device)).sum().backward()
            assert (model[0].weight.grad is not None) == needs


def test_parameters_with_another_layout_in_the_same_place(device):
    model = linear(device)
    run = cudagraphs.fast_path(model, config=config(device))
    x = torch.ones(2, 3, device=device)
    for _ in range(3):
        run(x)
    model.weight.data = model.weight.data.t()
    model.train()  # a change of the module has it looked at again
    model.eval()
    torch.testing.assert_close(run(x), model(x).detach())


def test_a_lazy_module(device):
    run = cudagraphs.fast_path(nn.LazyLinear(2).to(device), config=config(device))
    for _ in range(4):
        assert run(torch.ones(2, 3, device=device)).shape == (2, 2)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_uses_the_copied_modules(device, how):
    class_of = Encoding
    model = class_of(device)
    x = torch.ones(2, 3, device=device)
    for _ in range(3):
        model.fast(x)
    other = copy.deepcopy(model) if how == "deepcopy" else pickle.loads(pickle.dumps(model))
    nn.init.zeros_(other.layer.weight)
    nn.init.zeros_(other.layer.bias)
    assert other.fast(x).abs().sum() == 0
    assert model.fast(x).abs().sum() > 0


class Encoding(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.layer = linear(device)
        self.fast = cudagraphs.fast_path(self.encode, config=config(device))

    def encode(self, x):
        return self.layer(x)


@pytest.mark.uncaptured
def test_a_module_keeps_its_forward_where_it_cannot_be_graphed(device):
    model = linear(device)
    model.forward = mine = lambda x: nn.functional.linear(x, model.weight)
    x = torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        cudagraphs.graphed(model, (torch.ones(2, 4, device=device),), config=config(device))
    assert model.forward is mine
    other = linear(device)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        cudagraphs.graphed((other, model), ((x,), (torch.ones(2, 4, device=device),)), config=config(device))
    assert "forward" not in vars(other)


@pytest.mark.parametrize("path", ["graphed", "in_place"])
def test_statistics_are_counted_once(device, inputs, path):
    model = nn.Sequential(linear(device), nn.BatchNorm1d(3), linear(device)).to(device)
    twin = copy.deepcopy(model)
    x = torch.arange(6.0, device=device).view(2, 3)
    how = config(device, inputs=inputs, gradients="in_place" if path == "in_place" else "autograd")
    if path == "graphed":
        run = cudagraphs.graphed(model, (x,), config=how, warmup=1)
        twin(x)
    else:
        run = torch.compile(model, backend=cudagraphs.backend(how))
    for number in range(4):
        with torch.set_grad_enabled(number % 2 == 1 or path == "in_place"):
            torch.testing.assert_close(run(x + number), twin(x + number))
    assert model[1].num_batches_tracked == twin[1].num_batches_tracked
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)


# buckets and recordings


def test_arguments_that_are_padded_and_changed(device):
    model = linear(device)

    def change(x):
        x.add_(1)
        return model(x)

    run = cudagraphs.fast_path(change, config=config(device, buckets={0: (2, 4)}))
    for rows in (3, 4, 1, 2, 3, 3):
        alike(run, change, lambda number, rows=rows: (torch.full((rows, 3), float(number), device=device),), calls=2)


def test_buckets_of_the_last_dimension_are_recorded_once(device):
    run = cudagraphs.fast_path(
        torch.sin, torch.ones(2, 3, 8, device=device), frozen=True, config=config(device, buckets={2: (2, 4, 8)})
    )
    assert cudagraphs.stats().recordings == 3
    for size in range(1, 9):
        x = torch.rand(2, 3, size, device=device)
        torch.testing.assert_close(run(x), x.sin())
    assert cudagraphs.stats().recordings == 3


def test_a_recording_that_made_room_for_one_that_failed(device):
    def reads(x):
        return x * x.sum().item() if len(x) == 3 else x + 1

    run = cudagraphs.fast_path(reads, frozen=True, config=config(device, max_recordings=1, on_limit="lru"))
    two, three = torch.ones(2, device=device), torch.ones(3, device=device)
    for _ in range(3):
        run(two)
    run(three)
    with pytest.warns(DynxWarning, match="runs uncaptured"):
        run(three)
    assert run(two).tolist() == [2.0, 2.0]


def test_recordings_that_made_room_are_let_go(device):
    model = linear(device)
    run = cudagraphs.graphed(model, (torch.ones(1, 3, device=device),), config=config(device, max_recordings=2, on_limit="lru"))
    seen = weakref.WeakSet()
    for rows in (1, 2, 3, 4, 3, 4, 2, 1, 2, 1):
        for _ in range(3):
            run(torch.ones(rows, 3, device=device)).sum().backward()
        seen.update(run.forward.recordings)
        assert len(run.forward.recordings) <= 2
    gc.collect()
    assert len(seen) <= 3, "those that are there, and one that was used last"
    run.forward.close()
    gc.collect()
    assert not seen


@pytest.mark.parametrize("params", ["rerecord", "patch"])
def test_layouts_that_take_turns(device, params):
    model = linear(device)
    run = cudagraphs.fast_path(model, config=config(device, params=params))
    for rows in [1, 2, 3] * 5:
        x = torch.rand(rows, 3, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
    assert len(run.recordings) == 3
    model.weight.data = torch.zeros_like(model.weight)
    for rows in [1, 2, 3] * 3:
        x = torch.rand(rows, 3, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
