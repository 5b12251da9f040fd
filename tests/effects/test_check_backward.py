"""`dynx.check(…, compiled_autograd=True)`: the backward passes of the compiled side are captured, compiled and compared."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.utils.checkpoint import checkpoint

import dynx
from dynx.errors import UsageError


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def doubles_gradients(graph, example_inputs):
    """A backend that is wrong for captured backward passes, and right for all other graphs."""
    if not compiled_autograd.in_compiled_autograd_region:
        return graph
    return lambda *inputs: [out * 2 if isinstance(out, torch.Tensor) else out for out in graph(*inputs)]


def loss(x, weight):
    return checkpoint(lambda t: Scale.apply(t @ weight).tanh(), x, use_reentrant=False).pow(2).sum()


def inputs():
    return torch.ones(3, 4), torch.eye(4, requires_grad=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_of_captured_passes_are_those_of_eager_code(backend):
    with dynx.watch() as w:
        report = dynx.check(loss, *inputs(), backend=backend, compiled_autograd=True)
    assert report.ok, report
    assert w.backward_captures


def test_a_wrong_backward_pass_is_found_only_when_it_is_captured():
    assert dynx.check(loss, *inputs(), backend=doubles_gradients).ok
    report = dynx.check(loss, *inputs(), backend=doubles_gradients, compiled_autograd=True)
    assert not report.ok
    assert "weight" in report.diffs[0].path or "args[1]" in report.diffs[0].path


def test_a_backward_pass_within_the_function():
    model = torch.nn.Linear(4, 1)

    def train(x):
        total = model(x).pow(2).sum()
        total.backward()
        return total.detach()

    report = dynx.check(train, torch.ones(2, 4), compiled_autograd=True, state={"model": model})
    assert report.ok, report
    assert model.weight.grad is None


def test_the_cache_and_the_setting_are_as_before():
    with dynx.autograd.capture(backend=None):
        dynx.check(loss, *inputs(), compiled_autograd=True)
        assert torch._C._dynamo.compiled_autograd.is_cache_empty()
        assert compiled_autograd.compiled_autograd_enabled
    assert not compiled_autograd.compiled_autograd_enabled


def test_a_check_within_a_captured_pass_is_refused():
    w = torch.ones(4, requires_grad=True)
    raised = []

    def hook(gradient):
        with pytest.raises(UsageError, match="a captured backward pass is running") as error:
            dynx.check(loss, *inputs(), backend="eager", compiled_autograd=True)
        raised.append(error)

    w.register_hook(hook)
    with dynx.autograd.capture(backend=None):
        w.sin().sum().backward()
    assert len(raised) == 1
