"""A captured backward pass that is compiled again has a finding at the line of the hook, and advice that helps."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import dynx


def passes(program, watch=None, count=3, **options):
    """Run passes of `program`, which returns a function of the number of the pass; return gradients and compiled graphs."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    codes, found = [], []
    step = program()

    def backend(graph, inputs):
        codes.append(graph.code)
        return graph.forward

    compiler = torch.compile(backend=backend, **options)
    with watch or nullcontext(), torch._dynamo.compiled_autograd._enable(compiler, dynamic=False):
        found += [step(number) for number in range(count)]
    return found, codes, dict(counters["stats"])


def findings(program, count=3, **options):
    watch = dynx.watch(what_if=True)
    passes(program, watch, count, **options)
    assert not watch.troubles
    return watch.findings


def compiles(program, count=3, **options):
    return len(passes(program, count=count, **options)[1])


def hooked(hook, change=lambda number: None):
    w = torch.randn(4, requires_grad=True)
    w.register_hook(hook)

    def step(number):
        change(number)
        w.grad = None
        w.sin().sum().backward()
        return w.grad.clone()

    return step


def as_float(number):
    return number + 2.0


def as_tensor(number):
    return torch.tensor(number + 2.0)


def local(value):
    factor = value(0)

    def hook(gradient):
        return gradient * factor

    def change(number):
        nonlocal factor
        factor = value(number)

    return hooked(hook, change)


class Scale:
    factor = 2.0

    def method(self, gradient):
        return gradient * self.factor

    def __call__(self, gradient):
        return gradient * self.factor


def attribute(value, of=lambda scale: scale):
    scale = Scale()
    return hooked(of(scale), lambda number: setattr(scale, "factor", value(number)))


def method(value):
    return attribute(value, lambda scale: scale.method)


def keyword(value):
    def hook(gradient, settings):
        return gradient * settings["factor"]

    settings = {"factor": 2.0}
    return hooked(functools.partial(hook, settings=settings), lambda number: settings.update(factor=value(number)))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def context(value):
    w = torch.randn(4, requires_grad=True)

    def step(number):
        w.grad = None
        Scaled.apply(w, value(number)).sum().backward()
        return w.grad.clone()

    return step


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (local, "factor"),
        (attribute, "self.factor"),
        (method, "self.factor"),
        (keyword, "settings['factor']"),
        (context, "ctx.factor"),
    ],
)
def test_a_number_that_a_hook_reads(program, name):
    floats, tensors = (functools.partial(program, value) for value in (as_float, as_tensor))
    assert compiles(floats) == 2
    (finding,) = findings(floats)
    assert finding.rule == "DX114"
    assert finding.title == f"{name} 2.0, then 3.0"
    assert finding.advice == f"compile with dynamic=True (proven: 1 compile, not 2); or make {name} a tensor"
    assert finding.location.function.endswith(("hook", "__call__", "method", "backward"))
    assert compiles(floats, dynamic=True) == 1
    assert findings(floats, dynamic=True) == ()
    assert compiles(tensors) == 1
    assert findings(tensors) == ()


def test_a_list_that_a_hook_appends_to():
    def program(cleared=False):
        seen = []

        def hook(gradient):
            seen.append(gradient)
            return gradient * len(seen)

        return hooked(hook, (lambda number: seen.clear()) if cleared else lambda number: None)

    (finding,) = findings(program)
    assert (finding.rule, finding.title) == ("DX104", "len(seen) 0, then 1, 2")
    assert finding.advice.startswith("seen.clear() before each call")
    assert compiles(program) == 3
    assert compiles(functools.partial(program, cleared=True)) == 1


def test_the_mode_of_a_module():
    def program():
        linear = nn.Linear(4, 4)

        def hook(module, inputs, outputs):
            return (inputs[0] * (2 if module.training else 1),)

        linear.register_full_backward_hook(hook)

        def step(number):
            linear.train(number == 0)
            linear.zero_grad()
            linear(torch.ones(2, 4, requires_grad=True)).sum().backward()

        return step

    (finding,) = (finding for finding in findings(program) if finding.rule == "DX107")
    assert finding.advice == "one recompile per mode is expected; to avoid it, read it in the forward pass, not in a hook"


def of_sizes(hook):
    linear = nn.Linear(4, 4)
    linear.register_full_backward_hook(hook)

    def step(number):
        linear.zero_grad()
        linear(torch.ones(2 + number, 4, requires_grad=True)).sum().backward()

    return step


def test_sizes_that_torch_makes_dynamic():
    found = findings(lambda: of_sizes(lambda module, inputs, outputs: (inputs[0] * 2,)), count=6)
    (finding,) = (finding for finding in found if finding.rule == "DX716")
    assert finding.title == "a captured backward pass is compiled again: a size or an index 3, then 4"
    assert finding.advice == "one more compile is expected: torch makes a size dynamic when it changes"


def test_an_index_is_not_a_size():
    def program():
        x = torch.ones(6, 4, requires_grad=True)
        return lambda number: torch.autograd.grad(x[(1, 2, 3, 0)[number]].sum(), x)

    found = findings(program, count=4)
    assert [finding.rule for finding in found] == ["DX716", "DX711"]
    assert found[0].title == "a captured backward pass is compiled again: a size or an index above 0, then 0 or below"


def test_a_size_that_a_hook_needs_exactly():
    factors = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]

    def hook(module, inputs, outputs):
        return (inputs[0] * factors[outputs[0].shape[0]],)

    found = findings(lambda: of_sizes(hook), count=6)
    (finding,) = (finding for finding in found if finding.rule == "DX716")
    assert finding.count == 4
    assert finding.location.function.endswith("hook")
    assert finding.advice.startswith("this line needs the exact size: one compile for each size")


def test_values_of_a_pass_that_a_graph_break_splits_are_not_named():
    def hook(module, inputs, outputs):
        print(end="")
        return (inputs[0] * 2,)

    found = findings(lambda: of_sizes(hook), count=6)
    assert {finding.rule for finding in found} >= {"DX201", "DX711", "DX716"}
    assert not any("<value of line" in f"{finding.title} {finding.advice}" for finding in found)


def test_memory_formats():
    def program(other=True):
        def step(number):
            w = torch.randn(4, 3, requires_grad=True)
            gradient = torch.ones(4, 3) if number == 0 or not other else torch.ones(3, 4).t()
            w.sin().backward(gradient)

        return step

    (finding,) = findings(program)
    assert finding.rule == "DX716"
    assert finding.advice.startswith("one compile for each memory format is expected")
    assert findings(lambda: program(other=False)) == ()


@pytest.mark.parametrize("program", [local, attribute, context])
def test_what_ifs_change_nothing_of_captured_passes(program):
    program = functools.partial(program, as_float)
    passes(program)  # torch also compiles functions of sympy, until they are cached
    gradients, codes, counts = passes(program)
    found, found_codes, found_counts = passes(program, dynx.watch(what_if=True))
    assert (found_codes, found_counts) == (codes, counts)
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
