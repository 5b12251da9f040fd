"""Views of one activation: what together has all of its bytes is packed as one tensor."""

import pytest
import torch
from support.saved_training import EXACT, exact_hooks, gradients, graphs_saved
from torch import nn

from dynx import saved

BACKENDS = ["aot_eager", "inductor"]


def packed(fn, *inputs, backend="aot_eager", hooks=None, parameters=()):
    """Train under hooks, check the gradients against those without hooks, and return the tensors that are packed."""
    torch._dynamo.reset()
    expected = gradients(fn, *inputs, parameters=parameters)
    with graphs_saved() as graphs:
        actual = gradients(torch.compile(fn, backend=backend), *inputs, hooks=hooks or exact_hooks(), parameters=parameters)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    return [tensor for graph in graphs for tensor in graph.activations if tensor.codec is not None]


def leaf(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_query_key_and_value_of_one_product(backend):
    linear = nn.Linear(16, 48)

    def attention(x):
        parts = linear(x).split(16, dim=2)
        query, key, value = (part.unflatten(2, (2, 8)).transpose(1, 2) for part in parts)
        return nn.functional.scaled_dot_product_attention(query, key, value)

    tensors = packed(attention, leaf(2, 5, 16), backend=backend, parameters=tuple(linear.parameters()))
    assert [tensor.bytes for tensor in tensors].count(2 * 5 * 48 * 4) == 1
    assert not any("split" in tensor.op for tensor in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gate_and_what_it_opens(backend):
    def gated(x):
        value, gate = (x @ x.T).chunk(2, dim=1)
        return value * gate

    assert [tensor.shape for tensor in packed(gated, leaf(8, 8), backend=backend)] == [(8, 8)]


def test_half_of_an_activation_stays_half():
    def half(x):
        part = x.exp().sin()[:, :4]
        return part * part @ part.T

    tensors = packed(half, leaf(8, 8))
    assert (8, 4) in [tensor.shape for tensor in tensors]


def test_overlapping_parts():
    def windows(x):
        y = x @ x.T
        return y[:, :6].sin() * y[:, 2:].cos()

    assert [tensor.shape for tensor in packed(windows, leaf(8, 8))] == [(8, 8)]


@pytest.mark.slow
def test_parts_of_an_operator_with_several_results_are_no_views():
    norm = nn.LayerNorm(8, elementwise_affine=False)
    tensors = packed(lambda x: norm(x.sin()).cos(), leaf(4, 8), hooks=saved.hooks(saved.rule(EXACT)))
    assert tensors


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("schedule", ["auto", "graph", "none"])
def test_computed_again_from_a_tensor_that_is_packed(backend, schedule):
    """The tensor is unpacked in front of what is computed from it, in whichever order they are inserted."""

    def activated(x):
        y = x @ x.T
        return (y.tanh() * y.sigmoid()) @ x

    again = saved.rule(saved.codecs.recompute(), name="mul")
    tensors = packed(activated, leaf(8, 8), backend=backend, hooks=saved.hooks(again, saved.rule(EXACT), schedule=schedule))
    assert {tensor.codec for tensor in tensors} == {"recompute", "negated"}
