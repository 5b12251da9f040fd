"""`params="patch"`: parameters with new addresses are patched into the graph instead of triggering a recapture."""

from __future__ import annotations

import copy
import gc
import weakref
from dataclasses import replace

import pytest
import torch
from support.agreement import assert_agree
from support.configs import compiled, config_for
from support.devices import on_cuda
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError


@pytest.fixture(autouse=True)
def cuda_bindings(device):
    if device == "cuda":
        pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")


def config(device, **options):
    return config_for(device, params="patch", **options)


def tied_mlp(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16))
    model[3].weight = model[0].weight  # tied
    return model.to(device)


def compile_patched(model, device):
    return compiled(model, device, params="patch")


def fast(model, device):
    return cudagraphs.fast_path(model, torch.ones(4, 16, device=device), config=config(device))


def agree(run, model, device, calls=3):
    assert_agree(run, model, lambda: (torch.randn(4, 16, device=device),), calls=calls)


def move_params(model):
    """Move the parameters of a model to new memory, with other values."""
    for param in model.parameters():
        param.data = torch.randn_like(param)


def replace_params(model):
    """Replace the parameters of a model by others."""
    twin = copy.deepcopy(model)
    move_params(twin)
    model.load_state_dict(twin.state_dict(), assign=True)
    model[3].weight = model[0].weight


@pytest.mark.parametrize("make", [compile_patched, fast])
@pytest.mark.parametrize("change", [move_params, replace_params])
def test_patched_parameter_addresses_need_no_recapture(device, make, change):
    model = tied_mlp(device)
    run = make(model, device)
    agree(run, model, device)
    for _ in range(5):
        change(model)
        agree(run, model, device)
    stats = cudagraphs.stats()
    assert stats.recordings == 1
    assert (stats.copies, stats.uncaptured) == (0, 1)


def test_replaced_parameters_are_freed(device):
    model = tied_mlp(device)
    run = fast(model, device)
    old = weakref.ref(model[2].weight)
    for _ in range(2):
        replace_params(model)
        agree(run, model, device)
    gc.collect()
    assert old() is None


@on_cuda
def test_memory_used_to_verify_patched_parameters_is_freed(device):
    model = nn.Linear(2048, 2048, device=device)
    run = cudagraphs.fast_path(model, torch.ones(4, 2048, device=device), config=config(device))
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        model.weight = nn.Parameter(torch.randn_like(model.weight))
        x = torch.randn(4, 2048, device=device)
        torch.testing.assert_close(run(x), model(x).detach())
    assert torch.cuda.memory_allocated() <= before + 2**20


def test_new_addresses_of_parameters_that_are_trained_trigger_a_recapture(device):
    model = tied_mlp(device)
    run = compile_patched(model, device)
    for _ in range(3):
        run(torch.randn(4, 16, device=device)).sum().backward()
    assert cudagraphs.stats().recordings == 2
    move_params(model)
    model.zero_grad()
    run(torch.randn(4, 16, device=device)).sum().backward()
    assert cudagraphs.stats().recordings == 4


def batch_norm_model(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).to(device)  # running statistics are mutated


def test_new_addresses_trigger_a_recapture_if_patching_cannot_be_verified(device):
    model, twin = batch_norm_model(device), batch_norm_model(device)
    run = compile_patched(model, device)
    agree(run, twin, device)
    move_params(model)
    twin.load_state_dict(model.state_dict())
    agree(run, twin, device)
    assert cudagraphs.stats().recordings == 3, "the new addresses could not be patched"
    report = cudagraphs.explain(torch.no_grad()(lambda x: model(x)), torch.ones(4, 16, device=device), config=config(device))
    assert report.graphs[0].notes == (
        "parameters with a new address are recorded again: "
        "the graph mutates its inputs, so patched pointers cannot be verified by replaying it",
    )


def test_fast_path_warns_if_patching_cannot_be_verified(device):
    model, twin = batch_norm_model(device), batch_norm_model(device)
    with pytest.warns(DynxWarning, match="records parameters at fixed addresses, not patched: the graph mutates its inputs"):
        run = fast(model, device)
    for _ in range(2):
        twin(torch.ones(4, 16, device=device))
    twin.load_state_dict(model.state_dict())
    agree(run, twin, device)
    move_params(model)
    twin.load_state_dict(model.state_dict())
    agree(run, twin, device)


def test_new_parameter_shapes_and_layers_trigger_a_recapture(device):
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)).to(device).eval()
    run = fast(model, device)
    agree(run, model, device)
    model[0].weight = nn.Parameter(torch.randn(8, 16, device=device))
    model[0].bias = nn.Parameter(torch.randn(8, device=device))
    agree(run, model, device)
    model.append(nn.Tanh())
    agree(run, model, device)


@pytest.mark.uncaptured
def test_options_incompatible_with_patched_parameters_raise(device):
    model, x = tied_mlp(device), torch.ones(4, 16, device=device)
    with pytest.raises(UsageError, match="params='patch' patches inputs too"):
        config(device, inputs="copy")
    with pytest.raises(UsageError, match="leave out unsafe_skip_checks and buckets"):
        cudagraphs.fast_path(model, x, unsafe_skip_checks=True, config=config(device))
    with pytest.raises(UsageError, match="leave out unsafe_skip_checks and buckets"):
        cudagraphs.fast_path(model, x, config=config(device, buckets={0: (4,)}))
    for make in (
        lambda: cudagraphs.graphed(model, (x,), config=config(device)),
        lambda: cudagraphs.train_step(model, model.parameters(), config=config(device)),
    ):
        with pytest.raises(UsageError, match="params='patch' works only for graphs without gradients"):
            make()


class ReadsThroughList(nn.Module):
    """Reads its parameter through a list."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16, bias=False)
        self.weights = [self.inner.weight]

    def forward(self, x):
        return x @ self.weights[0]


def test_parameter_also_read_through_a_list_warns_and_matches_eager(device):
    model = ReadsThroughList().to(device)
    with pytest.warns(DynxWarning, match="the captured function also reads an argument's tensor through a global"):
        run = fast(model, device)
    agree(run, model, device)
    model.inner.weight.data = model.inner.weight.data * 3
    agree(run, model, device)


def test_rebound_tensor_attribute_of_a_module_matches_eager(device):
    model = nn.Linear(16, 16).to(device)
    model.scale = torch.ones(16, device=device)
    function = model.forward
    model.forward = lambda x: function(x) * model.scale
    run = fast(model, device)
    for _ in range(6):
        model.scale = model.scale + 1
        agree(run, model, device, calls=2)


class AssignsBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        return x + self.calls


@pytest.mark.uncaptured
def test_forward_that_assigns_a_buffer_warns_and_matches_eager(device):
    model = AssignsBuffer().to(device)
    run = cudagraphs.fast_path(model, config=config(device))
    with pytest.warns(DynxWarning):
        actual = [run(torch.zeros(4, 16, device=device))[0, 0].item() for _ in range(5)]
    assert actual == [1.0, 2.0, 3.0, 4.0, 5.0]


SWAPS = "swaps"


class Swaps(list):
    """A list that is compared by its identity."""


class SwapsBuffers(nn.Module):
    """Adds the first of two buffers; swaps them before that if `swaps` is not empty."""

    def __init__(self, swaps):
        super().__init__()
        self.register_buffer("first", torch.ones(()))
        self.register_buffer("second", torch.full((), 2.0))
        self.swaps = swaps

    def forward(self, x):
        if getattr(self, SWAPS):
            self.first, self.second = self.second, self.first
        return x + self.first


@pytest.mark.uncaptured
@pytest.mark.parametrize("params", ["rerecord", "patch"])
def test_forward_that_swaps_two_buffers_runs_uncaptured(device, params):
    model = SwapsBuffers([True]).to(device)
    run = cudagraphs.fast_path(model, config=replace(config(device), params=params))
    with pytest.warns(DynxWarning) as warnings:
        actual = [run(torch.zeros(4, 16, device=device))[0, 0].item() for _ in range(8)]
    text = str(warnings[-1].message)
    assert "the function changes attribute first of a SwapsBuffers (" in text
    assert "in SwapsBuffers.forward), which a replay would not do\n" in text
    assert actual == [2.0, 1.0] * 4


@pytest.mark.uncaptured
def test_buffers_assigned_during_a_failed_capture_are_restored(device):
    model = SwapsBuffers(Swaps()).to(device)
    run = cudagraphs.fast_path(model, config=replace(config(device), params="rerecord"))
    x = torch.zeros(4, 16, device=device)
    assert run(x)[0, 0] == 1
    model.swaps.append(True)  # not seen by the check: its name is not in the code
    with pytest.warns(
        DynxWarning,
        match=r"runs uncaptured: the function assigns first, second, which a replay would not do\n",
    ):
        assert run(x)[0, 0] == 2
    assert run(x)[0, 0] == 1
    assert not run.recordings


def test_attribute_assigned_in_the_first_forward_needs_one_recording(device):
    class Filling(nn.Linear):
        def forward(self, x):
            if not hasattr(self, "scale"):
                self.scale = self.weight.sum()
            return super().forward(x) * self.scale

    model = Filling(16, 16).to(device)
    run = fast(model, device)
    agree(run, model, device)
    assert len(run.recordings) == 1


def test_rebinding_a_closure_variable_to_another_module_matches_eager(device):
    layer, other = (torch.nn.Linear(16, 16).to(device) for _ in range(2))
    run = cudagraphs.fast_path(lambda x: layer(x), torch.ones(4, 16, device=device), config=config(device))
    for layer in (layer, other, layer):  # noqa: B020
        for _ in range(3):
            x = torch.randn(4, 16, device=device)
            torch.testing.assert_close(run(x), layer(x))
    assert cudagraphs.stats().recordings <= 2
