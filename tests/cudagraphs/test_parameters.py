"""Parameters that are others on another call: graphs are told where they are, instead of recorded anew."""

from __future__ import annotations

import copy
import gc
import weakref
from dataclasses import replace

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError


@pytest.fixture(autouse=True)
def bindings(device):
    if device == "cuda":
        pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")


def config(device, **how):
    return cudagraphs.Config(runtime=RUNTIMES[device], params="patch", **how)


def model_of(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16))
    model[3].weight = model[0].weight  # tied
    return model.to(device)


def compiled(model, device):
    return torch.compile(model, backend=cudagraphs.backend(config(device)))


def fast(model, device):
    return cudagraphs.fast_path(model, torch.ones(4, 16, device=device), config=config(device))


def agree(run, model, device, calls=3):
    with torch.no_grad():
        for _ in range(calls):
            x = torch.randn(4, 16, device=device)
            torch.testing.assert_close(run(x), model(x))


def elsewhere(model):
    """Have the parameters of a model lie somewhere else, with other values."""
    for each in model.parameters():
        each.data = torch.randn_like(each)


def replaced(model):
    """Give a model other parameters."""
    other = copy.deepcopy(model)
    elsewhere(other)
    model.load_state_dict(other.state_dict(), assign=True)
    model[3].weight = model[0].weight


@pytest.mark.parametrize("make", [compiled, fast])
@pytest.mark.parametrize("change", [elsewhere, replaced])
def test_no_other_recording(device, make, change):
    model = model_of(device)
    run = make(model, device)
    agree(run, model, device)
    for _ in range(5):
        change(model)
        agree(run, model, device)
    stats = cudagraphs.stats()
    assert stats.recordings == 1
    assert (stats.copies, stats.uncaptured) == (0, 1)


def test_old_parameters_are_not_kept(device):
    model = model_of(device)
    run = fast(model, device)
    old = weakref.ref(model[2].weight)
    for _ in range(2):
        replaced(model)
        agree(run, model, device)
    gc.collect()
    assert old() is None


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_what_is_copied_for_the_proof_is_given_back(device):
    model = nn.Linear(2048, 2048, device=device)
    run = cudagraphs.fast_path(model, torch.ones(4, 2048, device=device), config=config(device))
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        model.weight = nn.Parameter(torch.randn_like(model.weight))
        x = torch.randn(4, 2048, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
    assert torch.cuda.memory_allocated() <= before + 2**20


def test_with_gradients_they_are_read_where_they_lie(device):
    model = model_of(device)
    run = compiled(model, device)
    for _ in range(3):
        run(torch.randn(4, 16, device=device)).sum().backward()
    assert cudagraphs.stats().recordings == 2
    elsewhere(model)
    model.zero_grad()
    run(torch.randn(4, 16, device=device)).sum().backward()
    assert cudagraphs.stats().recordings == 4


def counting(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).to(device)  # changes its buffers


def test_where_a_graph_cannot_be_told_they_are_recorded_anew(device):
    model, twin = counting(device), counting(device)
    run = compiled(model, device)
    agree(run, twin, device)
    elsewhere(model)
    twin.load_state_dict(model.state_dict())
    agree(run, twin, device)
    assert cudagraphs.stats().recordings == 3, "one of which could not be told"
    report = cudagraphs.explain(torch.no_grad()(lambda x: model(x)), torch.ones(4, 16, device=device), config=config(device))
    assert report.graphs[0].notes == ("parameters that move are recorded anew: it changes something, so it cannot be tried",)


def test_a_fast_path_tells_so(device):
    model, twin = counting(device), counting(device)
    with pytest.warns(DynxWarning, match="records parameters where they lie: it changes something"):
        run = fast(model, device)
    for _ in range(2):
        twin(torch.ones(4, 16, device=device))
    twin.load_state_dict(model.state_dict())
    agree(run, twin, device)
    elsewhere(model)
    twin.load_state_dict(model.state_dict())
    agree(run, twin, device)


def test_other_things_that_change_are_noticed(device):
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)).to(device).eval()
    run = fast(model, device)
    agree(run, model, device)
    model[0].weight = nn.Parameter(torch.randn(8, 16, device=device))
    model[0].bias = nn.Parameter(torch.randn(8, device=device))
    agree(run, model, device)
    model.append(nn.Tanh())
    agree(run, model, device)


@pytest.mark.uncaptured
def test_what_does_not_go_together_is_refused(device):
    model, x = model_of(device), torch.ones(4, 16, device=device)
    with pytest.raises(UsageError, match="params='patch' tells inputs too"):
        config(device, inputs="copy")
    with pytest.raises(UsageError, match="leave out frozen and buckets"):
        cudagraphs.fast_path(model, x, frozen=True, config=config(device))
    with pytest.raises(UsageError, match="leave out frozen and buckets"):
        cudagraphs.fast_path(model, x, config=config(device, buckets={0: (4,)}))
    for make in (
        lambda: cudagraphs.graphed(model, (x,), config=config(device)),
        lambda: cudagraphs.train_step(model, model.parameters(), config=config(device)),
    ):
        with pytest.raises(UsageError, match="params='patch' is for graphs without gradients"):
            make()


class Otherwise(nn.Module):
    """Uses its parameter by another way than as an attribute."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16, bias=False)
        self.weights = [self.inner.weight]

    def forward(self, x):
        return x @ self.weights[0]


def test_parameters_that_are_found_by_another_way(device):
    model = Otherwise().to(device)
    with pytest.warns(DynxWarning, match="it finds an input by another way too"):
        run = fast(model, device)
    agree(run, model, device)
    model.inner.weight.data = model.inner.weight.data * 3
    agree(run, model, device)


def test_tensors_that_are_attributes_are_recorded_anew(device):
    model = nn.Linear(16, 16).to(device)
    model.scale = torch.ones(16, device=device)
    function = model.forward
    model.forward = lambda x: function(x) * model.scale
    run = fast(model, device)
    for _ in range(6):
        model.scale = model.scale + 1
        agree(run, model, device, calls=2)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        return x + self.calls


@pytest.mark.uncaptured
def test_what_the_function_assigns_stays(device):
    model = Counting().to(device)
    run = cudagraphs.fast_path(model, config=config(device))
    with pytest.warns(DynxWarning):
        found = [run(torch.zeros(4, 16, device=device))[0, 0].item() for _ in range(5)]
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0]


class Turning(nn.Module):
    """Uses one of two buffers; turns to the other one where it is told to."""

    def __init__(self, turns):
        super().__init__()
        self.register_buffer("here", torch.ones(()))
        self.register_buffer("there", torch.full((), 2.0))
        self.turns = turns

    def forward(self, x):
        if self.turns:
            self.here, self.there = self.there, self.here
        return x + self.here


@pytest.mark.uncaptured
@pytest.mark.parametrize("params", ["rerecord", "patch"])
def test_a_function_that_comes_back_to_what_it_was(device, params):
    model = Turning([True]).to(device)
    run = cudagraphs.fast_path(model, config=replace(config(device), params=params))
    with pytest.warns(DynxWarning) as told:
        found = [run(torch.zeros(4, 16, device=device))[0, 0].item() for _ in range(8)]
    assert str(told[-1].message).endswith("it changes here of a Turning itself, which a replay would not do")
    assert found == [2.0, 1.0] * 4


@pytest.mark.uncaptured
def test_what_a_function_assigns_while_it_is_captured_is_put_back(device):
    model = Turning([]).to(device)
    run = cudagraphs.fast_path(model, config=replace(config(device), params="rerecord"))
    x = torch.zeros(4, 16, device=device)
    assert run(x)[0, 0] == 1
    model.turns.append(True)  # of which only the list itself is seen
    with pytest.warns(DynxWarning, match=r"runs uncaptured: it changes here, there itself\n  have it give that as a result$"):
        assert run(x)[0, 0] == 2
    assert run(x)[0, 0] == 1
    assert not run.recordings


def test_a_cache_that_the_first_call_fills(device):
    class Filling(nn.Linear):
        def forward(self, x):
            if not hasattr(self, "scale"):
                self.scale = self.weight.sum()
            return super().forward(x) * self.scale

    model = Filling(16, 16).to(device)
    run = fast(model, device)
    agree(run, model, device)
    assert len(run.recordings) == 1


def test_names_of_modules_that_are_bound_to_others(device):
    layer, other = (torch.nn.Linear(16, 16).to(device) for _ in range(2))
    run = cudagraphs.fast_path(lambda x: layer(x), torch.ones(4, 16, device=device), config=config(device))
    for layer in (layer, other, layer):  # noqa: B020
        for _ in range(3):
            x = torch.randn(4, 16, device=device)
            torch.testing.assert_close(run(x), layer(x))
    assert cudagraphs.stats().recordings <= 2
