"""Functions that enter inference mode themselves, calls inside of it, and quantized tensors."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning

OPTIONS = {
    "copies": {},
    "static": {"outputs": "static"},
    "patched inputs": {"inputs": "patch"},
    "patched parameters": {"params": "patch"},
    "buckets": {"buckets": {0: (4, 8)}},
    "verified": {"verify": 2},
}


def layers(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)).to(device)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("where", ["in the function", "around the calls", "in turns"])
def test_inference_mode_matches_eager(device, where, options):
    """A capture allocates tensors of inference mode, which nothing outside of it may write to."""
    if device == "cuda" and "patch" in options:
        pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")
    model = layers(device)
    function = torch.inference_mode()(lambda x: model(x)) if where == "in the function" else model
    run = cudagraphs.fast_path(function, config=config_for(device, **OPTIONS[options]))
    for number in range(6):
        x = torch.full((4, 4), float(number), device=device)
        is_inside = where == "around the calls" or (where == "in turns" and number % 2 == 1)
        with torch.inference_mode(is_inside):
            torch.testing.assert_close(run(x.clone()), model(x))


def quantized(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_quantized_tensors_inside_of_a_function_match_eager():
    model, scaled = nn.Linear(4, 4), quantized(torch.ones(4, 4))
    run = cudagraphs.fast_path(lambda x: quantized(model(x)).dequantize() + scaled.dequantize(), config=config_for("cpu"))
    for number in range(4):
        x = torch.full((4, 4), float(number))
        torch.testing.assert_close(run(x), quantized(model(x)).dequantize() + scaled.dequantize())
    assert len(run.recordings) == 1


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.parametrize("kind", ["argument", "result"])
def test_a_quantized_argument_or_result_runs_uncaptured(kind):
    """Its scale is no memory that a replay reads or writes."""
    model, is_result = nn.Linear(4, 4), kind == "result"
    function = (lambda x: quantized(model(x))) if is_result else (lambda x: model(x.dequantize()))
    run = cudagraphs.fast_path(function, config=config_for("cpu"))
    words = "the function returns a quantized tensor" if is_result else "argument x is a quantized tensor"
    numbers = [torch.full((4, 4), float(number)) for number in range(4)]
    arguments = numbers if is_result else list(map(quantized, numbers))
    with pytest.warns(DynxWarning, match=f"runs uncaptured: {words}"):
        results = list(map(run, arguments))
    for result, argument in zip(results, arguments, strict=True):
        assert torch.equal(result.dequantize(), function(argument).dequantize())
