"""Recorded functions inside of `torch.func` transforms and forward-mode AD: they run uncaptured, or refuse by name."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from torch import nn
from torch.autograd import forward_ad

from dynx import cudagraphs
from dynx.errors import CaptureError, DynxWarning, UsageError


def dual(function, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, x + 1))).tangent


TRANSFORMS = {
    "vmap": lambda function, x: torch.func.vmap(function)(x),
    "grad": lambda function, x: torch.func.grad(lambda x: function(x).sum())(x),
    "vjp": lambda function, x: torch.func.vjp(function, x)[1](x)[0],
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,))[1],
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
    "forward-mode AD": dual,
}
ENTRIES = {
    "fast_path": (cudagraphs.fast_path, {}),
    "buckets": (cudagraphs.fast_path, {"buckets": {0: (4, 8)}}),
    "patched": (cudagraphs.fast_path, {"params": "patch"}),
    "graphed": (lambda model, x, *, config: cudagraphs.graphed(lambda x: model(x), (x,), config=config), {}),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # which torch.func.jvp uses
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_recorded_function_runs_uncaptured_inside_of_a_transform(device, transform, entry):
    """A replay would read none of the batches, and compute no tangents."""
    model, x = nn.Linear(4, 4).to(device), torch.randn(4, 4, device=device)
    record, options = ENTRIES[entry]
    run, transformed = record(model, x, config=config_for(device, **options)), TRANSFORMS[transform]
    run(x)

    def eager(x):  # fast_path computes no gradients
        with torch.set_grad_enabled(entry == "graphed"):
            return model(x)

    with pytest.warns(DynxWarning, match=r"runs uncaptured: it was called inside of a transform of torch\.func") as caught:
        results = [transformed(run, x) for _ in range(3)]
    assert [each.category for each in caught if each.category not in (DeprecationWarning, FutureWarning)] == [DynxWarning]
    torch.testing.assert_close(results, [transformed(eager, x)] * 3)
    torch.testing.assert_close(run(x), model(x))  # outside, it is replayed as before


def test_calls_with_keywords_and_without_tensors_run_uncaptured_inside_of_a_transform(device):
    """The layout of an element of a batch is that of an earlier argument; a function without arguments has no layouts."""
    model, x = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device)
    run = cudagraphs.fast_path(lambda *, x: model(x).sin(), config=config_for(device))
    read = cudagraphs.fast_path(lambda: model.weight.sum(), config=config_for(device))
    for _ in range(4):
        run(x=x[0]), read()
    with pytest.warns(DynxWarning, match="inside of a transform"):
        result = torch.func.vmap(lambda row: run(x=row) * read())(x)
    torch.testing.assert_close(result, model(x).sin() * model.weight.sum())
    torch.testing.assert_close(run(x=x[0]), model(x[0]).sin())


def test_random_numbers_without_arguments_are_those_of_the_transform(device):
    """A replay would draw the same numbers for each element of a batch."""
    x, layer = torch.zeros(3, 4, device=device), nn.Identity()
    draw = cudagraphs.fast_path(lambda: layer(torch.rand(4, device=device)), config=config_for(device))
    for _ in range(4):
        draw()
    with pytest.warns(DynxWarning, match="inside of a transform"):
        rows = torch.func.vmap(lambda row: row + draw(), randomness="different")(x)
    assert len(set(rows[:, 0].tolist())) == 3


def test_what_a_transform_returns_is_recorded(device):
    model, x = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device)
    run = cudagraphs.fast_path(torch.func.vmap(lambda row: model(row)), x, config=config_for(device))
    torch.testing.assert_close(run(x), model(x))


def test_with_or_error_a_transform_raises(device):
    model, x = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device)
    run = cudagraphs.fast_path(model, x, config=config_for(device, or_error=True))
    for _ in range(2):
        with pytest.raises(CaptureError, match="inside of a transform"):
            torch.func.vmap(run)(x)
    run(x)


@pytest.mark.parametrize("transform", [name for name in TRANSFORMS if name != "forward-mode AD"])
def test_a_training_step_refuses_a_transform(device, transform):
    model, x = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = cudagraphs.train_step(lambda x: model(x).mean(), model.parameters(), optimizer=optimizer, config=config_for(device))
    for _ in range(3):
        with pytest.raises(UsageError, match=r"the training step was called inside of a transform of torch\.func"):
            TRANSFORMS[transform](step, x)
        step(x)
