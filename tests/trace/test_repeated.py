"""Modules of a graph that do the same: found by their operations, shapes, and guarded values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import dynx
from dynx import Run
from dynx.advice import advise


class Layer(nn.Module):
    def __init__(self, number=0, width=8):
        super().__init__()
        self.number, self.first, self.second = number, nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x, cache=None):
        x = x + self.second(self.first(x).relu())
        return x if cache is None else x + cache[self.number]


class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, *caches):
        for layer in self.layers:
            x = layer(x, *caches)
        return x


def repeated(model, *args):
    torch._dynamo.reset()
    with dynx.watch() as w, torch.no_grad():
        torch.compile(model, backend="eager")(*args)
    assert not w.troubles
    return w.compiles[0].repeated


def test_equal_layers_are_one_record():
    found = repeated(Net(Layer() for _ in range(6)), torch.ones(2, 8))
    assert (found.source, found.type_name, found.count, found.differ) == ("self.layers", "Layer", 6, ())
    assert found.share == pytest.approx(1.0)


def test_layers_of_a_model_that_a_function_calls():
    model = Net(Layer() for _ in range(4))

    def step(x, y):
        return (model(x) - y).square().mean()

    found = repeated(step, torch.ones(2, 8), torch.ones(2, 8))
    assert (found.source, found.count) == ("model.layers", 4)
    assert 0.5 < found.share < 1.0


@pytest.mark.parametrize(
    "layers", [[Layer() for _ in range(3)], [Layer(width=width) for width in (4, 5, 6, 7)], [Layer().eval(), Layer(), Layer()]]
)
def test_few_layers_or_layers_with_other_shapes_are_not_repeated(layers):
    assert repeated(Net(layers), torch.ones(2, 8)) is None


def test_only_the_equal_layers_are_counted():
    found = repeated(Net([Layer(width=16), *(Layer() for _ in range(5))]), torch.ones(2, 8))
    assert found.count == 5


def test_a_first_layer_whose_input_needs_no_gradient_is_compiled_for_itself():
    """In training, the input of the first layer may be data, and that of the others needs gradients: torch guards it."""
    with dynx.watch() as w:
        torch.compile(Net(Layer() for _ in range(6)), backend="eager")(torch.ones(2, 8))
    assert w.compiles[0].repeated.count == 5


def test_a_number_that_a_layer_reads_is_named():
    found = repeated(Net(map(Layer, range(5))), torch.ones(2, 8), torch.ones(5, 8))
    assert found is None or found.differ == ("number",)


def test_a_number_that_no_layer_reads_is_not_named():
    assert repeated(Net(map(Layer, range(5))), torch.ones(2, 8)).differ == ()


def test_lists_in_lists_are_found_at_the_outer_list():
    stages = [nn.Sequential(*(Layer() for _ in range(4))) for _ in range(4)]
    found = repeated(Net(stages), torch.ones(2, 8))
    assert (found.source, found.count) == ("self.layers", 4)


@pytest.mark.parametrize("count", [0, 1])
def test_a_file_that_says_that_no_modules_are_equal_has_no_finding(count):
    with dynx.watch() as w, torch.no_grad():
        torch.compile(Net(Layer() for _ in range(6)), backend="eager")(torch.ones(2, 8))
    slow = replace(w.compiles[0], phases={"backend": 1000.0})
    assert [finding.rule for finding in advise(Run((slow,)))] == ["DX901"]
    assert not advise(Run((replace(slow, repeated=replace(slow.repeated, count=count)),)))
