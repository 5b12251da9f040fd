"""Tensors that compiled code keeps in an object: they may be missing before the first call, so no mark is advised."""

from __future__ import annotations

import pytest
import torch

from dynx.session import Watch


class ByLayer:
    def __init__(self):
        self.keys = {}

    def update(self, layer, x):
        self.keys[layer] = torch.cat([self.keys[layer], x]) if layer in self.keys else x
        return self.keys[layer]


class Layers:
    def __init__(self):
        self.layers = [Layer(), Layer()]

    def update(self, layer, x):
        return self.layers[layer].update(x)


class Layer:
    keys = None

    def update(self, x):
        self.keys = x if self.keys is None else torch.cat([self.keys, x])
        return self.keys


@pytest.mark.parametrize("cls", [ByLayer, Layers])
def test_a_tensor_that_may_be_missing_is_not_marked(cls):
    def decode(x, cache):
        return cache.update(0, x).sum() + cache.update(1, x).sum()

    with Watch() as watch:
        compiled, cache = torch.compile(decode, backend="eager"), cls()
        for _ in range(4):
            compiled(torch.ones(2), cache)
    sizes = [each for each in watch.findings if each.rule == "DX102"]
    assert sizes
    for finding in sizes:
        assert "mark_dynamic" not in finding.advice
        assert "at its largest size; write in place" in finding.advice
        assert not any(fix.kind == "mark" for fix in finding.fixes)
