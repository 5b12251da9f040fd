"""Recorded functions that record, or are compiled with, other recorded functions."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError

INNER = {
    "fast_path": (cudagraphs.fast_path, {}),
    "buckets": (cudagraphs.fast_path, {"buckets": {0: (4, 8)}}),
    "patched": (cudagraphs.fast_path, {"params": "patch"}),
    "graphed": (lambda model, x, *, config: cudagraphs.graphed(lambda x: model(x), (x,), config=config), {}),
}
OUTER = {
    "itself": lambda inner, config: cudagraphs.fast_path(inner, config=config),
    "by name": lambda inner, config: cudagraphs.fast_path(lambda x: inner(x), config=config),
}


@pytest.mark.filterwarnings("error::dynx.errors.DynxWarning")
@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_a_recorded_function_is_recorded_as_the_function_itself(device, inner, outer):
    model, x = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device)
    record, options = INNER[inner]
    run = OUTER[outer](record(model, x, config=config_for(device, **options)), config_for(device))
    for _ in range(4):
        torch.testing.assert_close(run(x), model(x))
    assert len(run.recordings) == 1
    with torch.no_grad():
        model.weight.data = model.weight + 1  # a new address, which the state of the outer function has
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_training_step_inside_of_another_recording_is_refused(device, accumulate):
    model, x, config = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device), config_for(device)
    step = cudagraphs.train_step(lambda x: model(x).mean(), model.parameters(), accumulate=accumulate, config=config)
    for function in (step, lambda x: model(x) + step(x)):
        with pytest.raises(UsageError, match="a function that train_step returned, which dynx captures already"):
            cudagraphs.fast_path(function, config=config)
        with pytest.raises(UsageError, match="a function that train_step returned, which dynx captures already"):
            cudagraphs.graphed(function, (x,), config=config)
    _ = [step(x) for _ in range(6)]


@pytest.mark.uncaptured
def test_a_recorded_function_is_compiled_as_the_function_itself(device):
    """Dynamo cannot trace how a recording is chosen."""
    model, x = nn.Linear(4, 4).to(device), torch.randn(3, 4, device=device)
    run = cudagraphs.fast_path(model, x, config=config_for(device))
    compiled = torch.compile(lambda x: run(x) + 1, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x) + 1)
