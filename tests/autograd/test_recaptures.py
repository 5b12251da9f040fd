"""Why compiled autograd captures a backward pass again: each change is named; a similar one without effect captures nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import dynx
from dynx._bytecode.source import line_at
from dynx.autograd import BackwardCapture, RecaptureReason

Step = Callable[[nn.Module], object]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def x(batch=4):
    return torch.randn(batch, 8)


def plain(model):
    model.zero_grad()
    model(x()).pow(2).sum().backward()


def captured(first: Step, second: Step, **options) -> tuple[BackwardCapture, ...]:
    """Run both steps with one model; return the captures of the second."""
    torch._dynamo.reset()
    model = net()
    with dynx.autograd.capture(backend=None, **options) as log:
        first(model)
        before = len(log)
        second(model)
        found = log[before:]
    assert not log.troubles
    return found


def reason(first: Step, second: Step, **options) -> RecaptureReason:
    (capture,) = captured(first, second, **options)
    found, *_ = capture.reasons
    assert found.kind != "unknown", found
    return found


def powers(exponent):
    return lambda model: (model.zero_grad(), model(x()).pow(exponent).sum().backward())


def softmax(dim):
    return lambda model: (model.zero_grad(), model(x()).softmax(dim).pow(2).sum().backward())


def scaled(factor):
    return lambda model: (model.zero_grad(), (model(x()) * factor).sum().backward())


def sized(batch):
    return lambda model: (model.zero_grad(), model(x(batch)).pow(2).sum().backward())


def accumulating(model):
    plain(model)
    model(x()).pow(2).sum().backward()


def frozen(model):
    model[0].requires_grad_(False)
    plain(model)


def doubled(g):
    return g * 2


def with_tensor_hook(model):
    handle = model[0].weight.register_hook(doubled)
    plain(model)
    handle.remove()


def ignored(parameter):
    pass


def with_post_accumulate_hook(model):
    handle = model[0].weight.register_post_accumulate_grad_hook(ignored)
    plain(model)
    handle.remove()


def with_hook_of_result(model):
    model.zero_grad()
    y = model(x())
    y.register_hook(doubled)
    y.pow(2).sum().backward()


def scales(inputs, outputs):
    return tuple(each * 2 for each in inputs)


def passes(outputs):
    return None


def with_hook_of_node(model):
    model.zero_grad()
    y = model(x()).pow(2)
    y.grad_fn.register_hook(scales)
    y.sum().backward()


def with_prehook_of_node(model):
    model.zero_grad()
    y = model(x()).pow(2)
    y.grad_fn.register_prehook(passes)
    y.sum().backward()


def retaining(model):
    model.zero_grad()
    y = model(x())
    y.retain_grad()
    y.pow(2).sum().backward()


def packed(t):
    return t


def unpacked(t):
    return t


def with_unpack_hooks(model):
    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(packed, unpacked):
        y = model(x()).pow(2)
    y.sum().backward()


def grads(model):
    torch.autograd.grad(model(x()).pow(2).sum(), list(model.parameters()))


def in_bfloat16(model):
    model.to(torch.bfloat16)(x().bfloat16()).pow(2).sum().backward()
    model.to(torch.float32)


def deeper(model):
    model.zero_grad()
    model(x()).tanh().pow(2).sum().backward()


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, factor):
        ctx.factor = factor
        return t * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


def with_function(model):
    model.zero_grad()
    Scale.apply(model(x()), 2).sum().backward()


def with_local_function(model):
    class Local(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    model.zero_grad()
    Local.apply(model(x())).sum().backward()


def looked_up(dtype):
    def step(model):
        table = torch.randn(4, 8, requires_grad=True)
        torch.nn.functional.embedding(torch.tensor([0, 2], dtype=dtype), table).sum().backward()

    return step


def of_dims(*sizes):
    def step(model):
        torch.zeros(*sizes, requires_grad=True).sin().sum().backward()

    return step


# the first and the second step; kind, subject, before and after of the reason; code at its line
CHANGES = {
    "exponent": (plain, powers(3), "value", "exponent", "2", "3", "pow(exponent)"),
    "dim": (softmax(0), softmax(1), "value", "dim", "0", "1", "softmax(dim)"),
    "number of dims": (of_dims(10), of_dims(2, 5), "value", "number of dims of self", "1", "2", "sum()"),
    "operation": (plain, deeper, "structure", "node", "AddmmBackward0", "TanhBackward0", "tanh()"),
    "no zero_grad": (plain, accumulating, "grad", ".grad of the parameter", "None", "a tensor", ""),
    "frozen": (
        plain,
        frozen,
        "frozen",
        "input 1",
        "ReluBackward0",
        "none: no gradient is needed (no longer reached: 0.bias, 0.weight)",
        "",
    ),
    "tensor hook": (plain, with_tensor_hook, "hook", "tensor_pre_hook doubled:", "no hook", "1 hook", "def doubled"),
    "hook of a result": (plain, with_hook_of_result, "hook", "tensor_pre_hook doubled:", "no hook", "1 hook", "def doubled"),
    "post-accumulate hook": (
        plain,
        with_post_accumulate_hook,
        "hook",
        "post_acc_grad_hook ignored:",
        "no hook",
        "1 hook",
        "def ignored",
    ),
    "hook of a node": (plain, with_hook_of_node, "hook", "post_hook scales:", "no hook", "1 hook", "def scales"),
    "prehook of a node": (plain, with_prehook_of_node, "hook", "pre_hook passes:", "no hook", "1 hook", "def passes"),
    "retain_grad": (plain, retaining, "hook", "cpp_tensor_pre_hook", "no hook", "1 hook", ""),
    "saved-tensor hooks": (
        plain,
        with_unpack_hooks,
        "hook",
        "unpack_hook unpacked:",
        "no hook",
        "1 hook",
        "def unpacked",
    ),
    "grad()": (plain, grads, "request", "call of", "backward()", "torch.autograd.grad()", ""),
    "dtype": (plain, in_bfloat16, "dtype", "gradient 0", "torch.float32 on cpu", "torch.bfloat16 on cpu", ""),
    "dtype of an index": (
        looked_up(torch.int64),
        looked_up(torch.int32),
        "dtype",
        "saved tensor indices",
        "torch.int64 on cpu",
        "torch.int32 on cpu",
        "embedding(",
    ),
    "custom Function": (scaled(2.0), with_function, "structure", "node", "MulBackward0", "ScaleBackward", "Scale.apply"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_change_is_named_with_both_values_and_the_line(change):
    first, second, kind, subject, before, after, code = CHANGES[change]
    found = reason(first, second)
    assert (found.kind, found.subject, found.before, found.after) == (kind, subject, before, after)
    if code:
        assert found.location is not None
        assert code in line_at(found.location.file, found.location.line, "")


def test_a_class_that_each_call_makes_is_named():
    found = reason(with_local_function, with_local_function)
    assert (found.kind, found.node.name) == ("function", "LocalBackward")
    assert found.node.function.endswith("with_local_function.<locals>.Local")


def test_sizes_that_are_not_dynamic_are_named():
    found = reason(sized(4), sized(6))
    assert (found.kind, found.before, found.after) == ("shape", "4", "6")
    assert found.node is not None


def test_a_disabled_hook_is_named_at_its_own_line():
    def with_disabled_hook(model):
        handle = model[0].weight.register_hook(torch.compiler.disable(doubled))
        plain(model)
        handle.remove()

    found = reason(plain, with_disabled_hook)
    assert "def doubled" in line_at(found.location.file, found.location.line, "")


def test_a_size_is_compared_with_the_capture_that_has_the_same_gradients_and_hooks():
    """The pass with `.grad` and the size 6 follows one without `.grad` of this size; torch looks at the one with `.grad`."""
    torch._dynamo.reset()
    model = net()
    with dynx.autograd.capture(backend=None) as log:
        accumulating(model)
        sized(6)(model)
        model(x(6)).pow(2).sum().backward()
    assert [(each.reason.kind, each.reason.before, each.reason.after) for each in log] == [
        ("first", "", ""),
        ("grad", "None", "a tensor"),
        ("shape", "4", "6"),
        ("shape", "4", "6"),
    ]


NEAR_MISSES = {
    "the same step": (plain, plain, {}),
    "another batch size": (sized(4), sized(6), {"dynamic": True}),
    "the same batch size": (sized(4), sized(4), {}),
    "another Python float": (scaled(2.0), scaled(3.0), {}),
    "the same tensor hook": (with_tensor_hook, with_tensor_hook, {}),
    "the same hook of a result": (with_hook_of_result, with_hook_of_result, {}),
    "the same post-accumulate hook": (with_post_accumulate_hook, with_post_accumulate_hook, {}),
    "the same hook of a node": (with_hook_of_node, with_hook_of_node, {}),
    "the same prehook of a node": (with_prehook_of_node, with_prehook_of_node, {}),
    "retain_grad again": (retaining, retaining, {}),
    "the same saved-tensor hooks": (with_unpack_hooks, with_unpack_hooks, {}),
    "grad() again": (grads, grads, {}),
    "the same custom Function": (with_function, with_function, {}),
    "frozen again": (frozen, frozen, {}),
    "another model": (plain, lambda model: plain(net()), {}),
    "retain_graph": (plain, lambda m: (m.zero_grad(), m(x()).pow(2).sum().backward(retain_graph=True)), {}),
    "the same dim": (softmax(1), softmax(1), {}),
}


@pytest.mark.parametrize("near", NEAR_MISSES)
def test_nothing_is_captured_again(near):
    first, second, options = NEAR_MISSES[near]
    assert captured(first, second, **options) == ()
