"""Parameters and modules are named as the outermost module that is alive names them."""

from __future__ import annotations

import torch
from torch import nn

from dynx._reading import names_in_modules


def names(*objects):
    found = names_in_modules.names_in_modules({id(each) for each in objects})
    return [found.get(id(each)) for each in objects]


def test_the_outermost_module_names_a_parameter():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    compiled = torch.compile(model)
    assert names(model[0].weight, model[1][0].bias) == ["0.weight", "1.0.bias"]
    assert names(compiled._orig_mod[0].bias) == ["0.bias"]


def test_modules():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh()))
    assert names(model, model[0], model[1][0]) == ["Sequential", "0", "1.0"]
    compiled = torch.compile(model)
    assert names(compiled, model, model[1]) == ["OptimizedModule", "Sequential", "1"]


def test_known_modules_are_not_searched_again(monkeypatch):
    model, other, plain = nn.Linear(2, 2), nn.Bilinear(2, 2, 2), torch.ones(2, requires_grad=True)
    assert names(model.weight, plain) == ["weight", None]
    with monkeypatch.context() as patch:
        patch.setattr(names_in_modules.gc, "get_objects", list)
        assert names(model.bias, other.bias) == ["bias", "bias"]
    late = nn.Sequential(nn.Linear(2, 2))
    assert names(model.bias, late[0].bias) == ["bias", "0.bias"]


def test_a_module_that_is_gone_names_nothing():
    model = nn.Sequential(nn.Linear(2, 2))
    weight = model[0].weight
    assert names(weight) == ["0.weight"]
    del model
    assert names(weight) == [None]
