"""Code of torch that breaks the graph of a captured pass: the finding says what brought it there, and its advice helps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dynx
from dynx import autograd

MODEL = nn.Linear(4, 4)
KEPT = []
AOT, HOOK = 'backend="aot_eager"', "y.register_hook(lambda gradient: kept.append(gradient))"


def recomputed(use_reentrant=False):
    return lambda x: checkpoint(lambda x: MODEL(x).tanh(), x, use_reentrant=use_reentrant).sum()


def kept(keep):
    def loss(x):
        y = x * 2
        keep(y)
        return y.pow(2).sum()

    return loss


def saved_on_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        return (x * 2).pow(3).sum()


def raises(gradient):
    raise ValueError("no gradient")


def watched(loss):
    """Return the finding of a captured pass, or None, and the gradient of x."""
    torch._dynamo.reset()
    x = torch.ones(2, 4, requires_grad=True)
    with dynx.watch() as watch, autograd.capture(backend="eager"):
        loss(x).backward()
    assert len(watch.findings) <= 1
    assert not watch.troubles
    return next(iter(watch.findings), None), x.grad


@pytest.mark.parametrize(
    ("loss", "advice", "followed"),
    [
        (recomputed(), AOT, torch.compile(recomputed(), backend="aot_eager")),
        (recomputed(use_reentrant=True), AOT, torch.compile(recomputed(), backend="aot_eager")),
        (kept(torch.Tensor.retain_grad), HOOK, kept(lambda y: y.register_hook(lambda gradient: KEPT.append(gradient)))),
    ],
)
def test_advice_on_a_break_in_code_of_torch_leaves_one_graph(loss, advice, followed):
    found, gradient = watched(loss)
    assert found.rule == "DX718"
    assert advice in found.advice
    assert found.title.startswith("a captured backward pass breaks its graph in torch's own code, at a call of torch.")
    none, after = watched(followed)
    assert none is None
    torch.testing.assert_close(after, gradient)


def test_a_break_without_a_known_remedy_is_expected():
    found, _ = watched(saved_on_cpu)
    assert found.rule == "DX718"
    assert found.advice == "expect it: Dynamo does not trace this code of torch"


def test_an_exception_of_a_hook_is_not_code_of_torch():
    x = torch.ones(2, requires_grad=True)
    x.register_hook(raises)
    with dynx.watch() as watch, autograd.capture(backend="eager"), pytest.raises(ValueError, match="no gradient"):
        x.sum().backward()
    assert "DX718" not in {finding.rule for finding in watch.findings}


def test_a_hook_without_python_code_is_not_code_of_torch():
    """torch 2.13 traces the method of a list; 2.11 breaks the graph there."""
    found, _ = watched(kept(lambda y: y.register_hook([].append)))
    assert found is None or found.rule != "DX718"
