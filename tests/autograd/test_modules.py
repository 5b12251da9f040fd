"""Nodes of a captured backward pass name the module in whose forward pass they were made."""

from __future__ import annotations

import gc
import re
import weakref

import torch
from torch import nn

import dynx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.layers[2].weight = self.layers[0].weight

    def forward(self, x):
        return self.layers(x).sin()


def test_each_node_names_the_module_whose_forward_pass_made_it():
    model = Net()
    with dynx.autograd.capture(backend=None) as log:
        model(torch.ones(2, 4)).exp().sum().backward()
    found = [(node.short_name, node.module) for node in log[0].nodes if node.short_name != "TBackward0"]
    assert found[:6] == [
        ("GraphRoot", ""),
        ("SumBackward0", ""),
        ("ExpBackward0", ""),
        ("SinBackward0", "Net"),
        ("AddmmBackward0", "layers.2"),
        ("TanhBackward0", "layers.1"),
    ]
    assert "# TanhBackward0 (NodeCall" in log[0].code
    assert ", layers.1) at" in log[0].code


def test_a_module_that_is_gone_names_no_node():
    with dynx.autograd.capture(backend=None) as log:
        loss = nn.Tanh()(torch.ones(2, requires_grad=True)).sum()
        gc.collect()
        loss.backward()
    assert [node.module for node in log[0].nodes if node.short_name == "TanhBackward0"] == [""]


def test_reading_modules_keeps_no_tensor_that_the_program_deletes():
    alive = []

    class Deletes(nn.Module):
        def forward(self, x):
            large = torch.ones(3)
            seen = weakref.ref(large)
            y = x * 2  # a node is made here
            del large
            alive.append(seen() is not None)
            return y

    with dynx.autograd.capture(backend=None):
        Deletes()(torch.ones(2, requires_grad=True)).sum().backward()
    assert alive == [False]


def test_a_function_whose_first_argument_is_a_module_is_none():
    def squared(self, x):
        return self(x) ** 2

    with dynx.autograd.capture(backend=None) as log:
        squared(nn.Tanh(), torch.ones(2, requires_grad=True)).sum().backward()
    assert [node.module for node in log[0].nodes if node.short_name == "PowBackward0"] == [""]


def test_a_compiled_forward_pass_is_traced_as_without_a_block():
    def graph_of(model):
        graphs = []

        def backend(graph, example_inputs):
            graphs.append(graph.print_readable(print_output=False))
            return graph

        torch.compile(model, backend=backend)(torch.ones(2, 4)).sum().backward()
        return graphs

    plain = graph_of(Net())
    torch._dynamo.reset()
    with dynx.autograd.capture(backend=None):
        assert graph_of(Net()) == plain


def test_a_traceback_of_anomaly_mode_ends_with_the_module():
    with dynx.autograd.capture(backend=None):
        y = nn.Tanh()(torch.ones(2, requires_grad=True))
    assert re.fullmatch(r"  In module \d+, Tanh\n", y.grad_fn.metadata["traceback_"][-1])


def test_the_block_leaves_torch_as_it_was():
    before = torch.fx.traceback.format_stack
    with dynx.autograd.capture(backend=None), dynx.autograd.capture(backend=None):
        pass
    assert torch.fx.traceback.format_stack is before
    with dynx.autograd.capture(backend=None, lines=False):
        assert torch.fx.traceback.format_stack is before
