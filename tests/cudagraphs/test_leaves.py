"""Parameters are replaced by other leaves while a module is captured, and only then."""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from dynx._torch.autograd.engine import renew_accumulators
from dynx.cudagraphs._state.params import leaves_in


class Own(nn.Parameter):
    pass


def test_other_leaves_in_the_same_memory():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight  # tied
    model[0].bias = Own(torch.ones(2))  # of another type: code may ask for it
    model[1].bias.requires_grad_(False)
    before = [dict(each.named_parameters()) for each in model]
    with leaves_in([model]) as leaves:
        first, second = model
        assert first.weight is second.weight is leaves[before[0]["weight"]]
        assert first.weight is not before[0]["weight"]
        assert first.weight.data_ptr() == before[0]["weight"].data_ptr()
        assert first.bias is before[0]["bias"]
        assert second.bias is before[1]["bias"]
        model(torch.ones(1, 2)).sum().backward()
    assert [dict(each.named_parameters()) for each in model] == before
    assert model[0].weight.grad is None


def test_they_are_put_back_after_an_error():
    model = nn.Linear(2, 2)
    before = dict(model.named_parameters())
    try:
        with leaves_in([model]):
            raise ValueError
    except ValueError:
        assert all(each is before[name] for name, each in model.named_parameters())


def test_nodes_that_add_to_gradients_are_made_anew():
    """Torch: a graph that is kept keeps them, with the stream they were made on."""
    leaves = [torch.ones(3, dtype=dtype, requires_grad=True) for dtype in (torch.float32, torch.float64, torch.bfloat16)]
    kept = [each.mul(2).sum() for each in leaves]
    before = [get_gradient_edge(each).node for each in leaves]
    assert [get_gradient_edge(each).node for each in leaves] == before
    addresses = [each.data_ptr() for each in leaves]
    renew_accumulators(leaves)
    assert all(get_gradient_edge(each).node is not node for each, node in zip(leaves, before, strict=True))
    assert [each.data_ptr() for each in leaves] == addresses
    for each, graph in zip(leaves, kept, strict=True):
        each.mul(3).sum().backward()
        graph.backward()  # which still knows where to
        assert each.grad.tolist() == [5, 5, 5]
