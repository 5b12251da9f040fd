"""While a module is captured, its parameters are replaced by other leaf tensors, and restored afterwards."""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from dynx._torch.autograd.engine import renew_accumulators
from dynx.cudagraphs._state.params import leaves_in


class CustomParameter(nn.Parameter):
    pass


def test_leaf_tensors_that_replace_parameters_share_their_memory():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight  # tied
    model[0].bias = CustomParameter(torch.ones(2))  # subclasses are not replaced: code may check the type
    model[1].bias.requires_grad_(False)
    before = [dict(layer.named_parameters()) for layer in model]
    with leaves_in([model]) as leaves:
        first, second = model
        assert first.weight is second.weight is leaves[before[0]["weight"]]
        assert first.weight is not before[0]["weight"]
        assert first.weight.data_ptr() == before[0]["weight"].data_ptr()
        assert first.bias is before[0]["bias"]
        assert second.bias is before[1]["bias"]
        model(torch.ones(1, 2)).sum().backward()
    assert [dict(layer.named_parameters()) for layer in model] == before
    assert model[0].weight.grad is None


def test_parameters_replaced_by_leaf_tensors_are_restored_after_an_error():
    model = nn.Linear(2, 2)
    before = dict(model.named_parameters())
    try:
        with leaves_in([model]):
            raise ValueError
    except ValueError:
        assert all(param is before[name] for name, param in model.named_parameters())


def test_renew_accumulators_creates_new_accumulate_grad_nodes():
    """An autograd graph that is alive keeps AccumulateGrad nodes alive, with the stream that they were created on."""
    leaves = [torch.ones(3, dtype=dtype, requires_grad=True) for dtype in (torch.float32, torch.float64, torch.bfloat16)]
    graphs = [param.mul(2).sum() for param in leaves]
    before = [get_gradient_edge(param).node for param in leaves]
    assert [get_gradient_edge(param).node for param in leaves] == before
    addresses = [param.data_ptr() for param in leaves]
    renew_accumulators(leaves)
    assert all(get_gradient_edge(param).node is not node for param, node in zip(leaves, before, strict=True))
    assert [param.data_ptr() for param in leaves] == addresses
    for param, graph in zip(leaves, graphs, strict=True):
        param.mul(3).sum().backward()
        graph.backward()  # through the old node
        assert param.grad.tolist() == [5, 5, 5]
