"""Gradients of captured passes equal those of eager autograd, for everything that an autograd graph may contain."""

from __future__ import annotations

import random

import pytest
import torch
from backward_models import Model, add_hooks, loss_of
from torch import nn
from torch.utils.checkpoint import checkpoint

import dynx


def gradients(step, backend=None, **options):
    """Run a step twice in a block of `capture` if `backend` is not "off"; return the gradients of each run, and the log."""
    torch._dynamo.reset()
    found = []
    if backend == "off":
        return [step() for _ in range(2)], None
    with dynx.autograd.capture(backend=backend, **options) as log:
        for _ in range(2):
            found.append(step())
    assert not log.troubles
    return found, log


def assert_same(found, expected):
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


def assert_equal(step, backend="eager", **options):
    expected, _ = gradients(step, "off")
    found, log = gradients(step, backend, **options)
    for run, reference in zip(found, expected, strict=True):
        assert_same(run, reference)
    assert len(log) >= 1
    assert all(capture.order_errors == () for capture in log)
    return log


@pytest.mark.parametrize("seed", range(12))
def test_random_models_with_hooks(seed):
    def step():
        torch.manual_seed(seed)
        choice, log = random.Random(seed), []
        model = Model(choice)
        add_hooks(model, choice, log)
        loss_of(model, choice, torch.randn(4, 6), log).backward()
        return [None if p.grad is None else p.grad.clone() for p in model.parameters()], sorted(log)

    assert_equal(step, None)


def test_the_hooks_of_a_parameter_run_in_eager_order():
    def step():
        torch.manual_seed(0)
        model, log = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), []
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda g, name=name: log.append(f"tensor {name}"))
            parameter.register_post_accumulate_grad_hook(lambda p, name=name: log.append(f"accumulated {name}"))
        model(torch.randn(2, 4)).sum().backward()
        return log

    log = assert_equal(step, None)
    kinds = {hook.kind for hook in log[0].hooks}
    assert kinds == {"tensor_pre_hook", "post_acc_grad_hook"}


def test_slices_that_are_written():
    """CopySlices: a view of a result is changed in place."""

    def step():
        torch.manual_seed(0)
        w = torch.randn(4, 4, requires_grad=True)
        y = w * 2
        y[1:3].mul_(3)
        y[:, 0].copy_(w[0])
        y.sin().sum().backward()
        return w.grad.clone()

    assert any(node.name == "torch::autograd::CopySlices" for node in assert_equal(step)[0].nodes)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    def step():
        torch.manual_seed(0)
        inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        x = torch.randn(2, 4, requires_grad=True)
        checkpoint(inner, x * 2, use_reentrant=reentrant).sum().backward()
        return [p.grad.clone() for p in inner.parameters()]

    assert_equal(step)


def test_retained_gradients():
    def step():
        torch.manual_seed(0)
        w = torch.randn(4, 4, requires_grad=True)
        y = w.sin()
        y.retain_grad()
        (y * y).sum().backward()
        return w.grad.clone(), y.grad.clone()

    assert_equal(step)


def test_a_graph_that_is_used_twice():
    def step():
        torch.manual_seed(0)
        w = torch.randn(4, 4, requires_grad=True)
        y = w.sin().sum()
        y.backward(retain_graph=True)
        y.backward()
        return w.grad.clone()

    assert_equal(step)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


def test_a_custom_function_is_named():
    def step():
        torch.manual_seed(0)
        w = torch.randn(4, requires_grad=True)
        Cube.apply(w).sum().backward()
        return w.grad.clone()

    (node,) = [node for node in assert_equal(step)[0].nodes if node.function]
    assert node.function.endswith("test_gradients.Cube")


def test_callbacks_at_the_end():
    def step():
        torch.manual_seed(0)
        w, log = torch.randn(4, requires_grad=True), []
        y = w * 2
        y.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(lambda: log.append("end")))
        y.sum().backward()
        return w.grad.clone(), log

    assert_equal(step, fullgraph=True)  # without it, Dynamo raises: "only supported … with fullgraph=True"


def test_the_stance_force_eager_captures_nothing():
    w = torch.randn(4, requires_grad=True)
    with torch.compiler.set_stance("force_eager"), dynx.autograd.capture() as log:
        w.sin().sum().backward()
    assert len(log) == 0
    assert w.grad is not None


def test_gradients_of_gradients_are_refused_as_torch_does():
    w = torch.randn(4, requires_grad=True)
    compiled = torch.compile(lambda x: x.sin() * x, backend="aot_eager")
    torch._dynamo.reset()
    with dynx.autograd.capture(backend=None) as log, pytest.raises(RuntimeError, match="higher order gradients"):
        torch.autograd.grad(compiled(w).sum(), w, create_graph=True)
    assert len(log) == 0
    w.sin().sum().backward()  # nothing is left installed
    assert w.grad is not None


@pytest.mark.filterwarnings("ignore:there is no CUDA device")
@pytest.mark.parametrize("forward", ["aot_eager", "dynx_cudagraphs"])
def test_a_compiled_forward_pass(forward):
    def step():
        torch.manual_seed(0)
        device = "cuda" if torch.cuda.is_available() else "cpu"  # where the emulator of CUDA graphs runs
        model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)).to(device)
        torch.compile(model, backend=forward)(torch.randn(2, 4, device=device)).sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    (node,) = [node for node in assert_equal(step)[0].nodes if node.name.startswith("CompiledFunction")]
    assert node.function.startswith("aot")
    assert node.operations > 3


def test_saved_tensors_that_dynx_packs():
    def step():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
        compiled = torch.compile(model, backend="aot_eager")
        with dynx.saved.hooks(dynx.saved.rule(dynx.saved.codecs.bf16(), min_numel=64)):
            loss = compiled(torch.randn(8, 64)).sum()
        loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    assert_equal(step)


def test_a_reset_in_the_block_forgets_the_captures_before_it():
    w = torch.randn(4, requires_grad=True)
    with dynx.autograd.capture(backend=None) as log:
        w.sin().sum().backward()
        torch._dynamo.reset()
        for power in (2, 3):
            w.grad = None
            w.pow(power).sum().backward()
    assert [capture.reasons[0].kind for capture in log] == ["first", "first", "value"]
    assert not torch._dynamo.compiled_autograd.compiled_autograd_enabled


def test_blocks_can_be_nested():
    w = torch.randn(4, requires_grad=True)
    torch._dynamo.reset()
    with dynx.autograd.capture(backend=None) as outer:
        w.sin().sum().backward()
        w.grad = None
        with dynx.autograd.capture(backend=None) as inner:
            w.cos().sum().backward()
        w.grad = None
        w.tanh().sum().backward()
    assert [len(outer), len(inner)] == [3, 1]
    assert "CosBackward0" in {node.name for node in inner[0].nodes}


def test_an_error_in_the_block_leaves_nothing_installed():
    w = torch.randn(4, requires_grad=True)

    def fails(g):
        raise ValueError("in a hook")

    y = w.sin()
    y.register_hook(fails)
    with dynx.autograd.capture(backend=None), pytest.raises(ValueError, match="in a hook"):
        y.sum().backward()
    assert not torch.is_anomaly_enabled()
    assert not torch._dynamo.compiled_autograd.compiled_autograd_enabled
