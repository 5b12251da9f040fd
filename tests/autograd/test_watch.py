"""A watch sees the captures of compiled autograd, and changes nothing of them."""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest
import torch
from torch import nn
from torch._dynamo.compiled_autograd import AutogradCompilerInstance
from torch._dynamo.convert_frame import ConvertFrameAssert
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

import dynx


def double(gradient):
    return gradient * 2


@contextmanager
def compiled_functions():
    """Yield the names of the functions that Dynamo begins to compile; not those of sympy, whose caches decide about them.

    A garbage collection within a capture has Dynamo compile the callbacks of weak references: none happens here.
    """
    names = []

    def converted(self, frame, *args, **kwargs):
        if "sympy" not in frame.f_code.co_filename:
            names.append(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)
        return original(self, frame, *args, **kwargs)

    original = ConvertFrameAssert.__call__
    gc.collect()
    gc.disable()
    try:
        with mock.patch.object(ConvertFrameAssert, "__call__", converted):
            yield names
    finally:
        gc.enable()


def trained(watch, *, inside, backend="eager"):
    """Train with compiled autograd; return gradients, captured and compiled graphs, and torch's counters."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model, codes, found = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), [], []
    model[0].weight.register_hook(double)

    def compiler(graph, inputs):
        codes.append(graph.code)
        return graph.forward

    def backward(loss):
        loss.backward()

    block = nullcontext() if inside else torch._dynamo.compiled_autograd._enable(torch.compile(backend=compiler))
    with compiled_functions() as functions, watch, block, torch._dynamo.config.patch(compiled_autograd=inside):
        run = torch.compile(backward, backend=compiler) if inside else backward
        for size, exponent in ((2, 2), (3, 2), (3, 3), (2, 3), (4, 2)):
            model.zero_grad()
            run(model(torch.randn(size, 4)).pow(exponent).sum())
            found.append([parameter.grad.clone() for parameter in model.parameters()])
    return found, codes, {name: dict(counters[name]) for name in ("stats", "compiled_autograd")} | {"functions": functions}


@pytest.mark.parametrize("inside", [False, True])
def test_graphs_counters_and_gradients_are_the_same(inside):
    trained(nullcontext(), inside=inside)  # torch also compiles functions of sympy, until they are cached
    gradients, codes, counts = trained(nullcontext(), inside=inside)
    with dynx.watch() as watch:
        found, found_codes, found_counts = trained(nullcontext(), inside=inside)
    assert not watch.troubles
    assert (found_codes, found_counts) == (codes, counts)
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    captures = watch.backward_captures
    assert len(captures) == counts["compiled_autograd"]["captures"]
    assert sum(capture.calls for capture in captures) == 5
    assert {capture.reason.kind for capture in captures} >= {"first", "value"}
    assert all(hook.function == "double" for capture in captures for hook in capture.hooks)


@pytest.mark.parametrize("watch", [nullcontext, dynx.watch])
def test_the_wrapper_of_a_captured_graph_is_called_with_torchs_names(watch):
    calls = []

    def end_capture(self, outputs):
        wrapper, compiled = original(self, outputs)
        names = ("compiled_fn", "inputs", "sizes", "scalars", "hooks", "packed_inputs")

        def by_name(*args):
            calls.append(len(args))
            return wrapper(**dict(zip(names, args, strict=True)))

        return by_name, compiled

    with watch():
        original = AutogradCompilerInstance.end_capture
        x, enabled = torch.ones(2, requires_grad=True), torch._dynamo.compiled_autograd._enable(lambda graph: graph)
        with mock.patch.object(AutogradCompilerInstance, "end_capture", end_capture), enabled:
            (x * 3).sum().backward()
    assert calls == [6]
    assert x.grad.tolist() == [3.0, 3.0]
    torch._dynamo.reset()


def test_each_cause_is_a_finding():
    with dynx.watch() as watch:
        trained(nullcontext(), inside=False)
    (finding,) = [finding for finding in watch.findings if finding.rule == "DX715"]
    assert finding.title == "a backward pass is captured again: PowBackward0 (NodeCall 2): exponent 2, then 3"
    assert finding.location.own.function.endswith("backward")


def test_passes_of_several_threads_are_seen():
    torch._dynamo.reset()

    def train():
        w = torch.randn(4, requires_grad=True)
        with torch._dynamo.compiled_autograd._enable(lambda graph: graph):
            for power in (2, 3):
                w.grad = None
                w.pow(power).sum().backward()

    with dynx.watch() as watch:
        threads = [threading.Thread(target=train) for _ in range(3)]
        for thread in threads:
            thread.start()
            thread.join()
    assert not watch.troubles
    assert sum(capture.calls for capture in watch.backward_captures) == 6


def test_a_pass_that_fails_leaves_the_watch_working():
    torch._dynamo.reset()
    w = torch.randn(4, requires_grad=True)

    def fails(graph):
        raise ValueError("in the compiler")

    with dynx.watch() as watch:
        with torch._dynamo.compiled_autograd._enable(fails), pytest.raises(ValueError, match="in the compiler"):
            w.sin().sum().backward()
        torch._dynamo.reset()
        with torch._dynamo.compiled_autograd._enable(lambda graph: graph):
            w.cos().sum().backward()
    assert [capture.calls for capture in watch.backward_captures] == [1]
    assert not watch.troubles


def test_captures_are_in_the_run_file(tmp_path):
    path = tmp_path / "run.dynx"
    with dynx.watch(out=path) as watch:
        trained(nullcontext(), inside=False)
    loaded = dynx.Run.load(path)
    assert loaded.backward_captures == watch.backward_captures
    assert [finding.title for finding in loaded.findings] == [finding.title for finding in watch.findings]


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return -g


def steps(loss, count=3, backend="eager"):
    """Run training steps whose backward pass begins in compiled code; `loss` gets the model and the number of the step."""
    torch._dynamo.reset()
    model = nn.Linear(4, 4)

    def step(number):
        total = loss(model, number)
        total.backward()

    with torch._dynamo.config.patch(compiled_autograd=True), dynx.watch() as watch:
        step = torch.compile(step, backend=backend)
        for number in range(count):
            model.zero_grad()
            step(number)
    return watch, [finding for finding in watch.findings if finding.rule.startswith("DX71")]


def test_each_cause_at_one_backward_call_has_its_finding():
    def loss(model, number):
        y = model(torch.ones(2, 4))
        return (y.tanh() if number > 1 else y).pow(3 if number == 1 else 2).sum()

    _, findings = steps(loss)
    assert len({finding.location.line for finding in findings}) == 1
    assert [finding.rule for finding in findings] == ["DX715", "DX715"]
    assert all("dynx.autograd.capture() names the line" in finding.advice for finding in findings)


def test_a_class_that_torch_makes_is_not_said_to_be_defined_by_the_program():
    def loss(model, number):
        return Reversed.apply(model(torch.ones(2, 4))).pow(2).sum()

    _, found = steps(loss)
    assert sorted(finding.rule for finding in found) == ["DX714", "DX718"]
    advice = 'compile the function that calls autograd.Function with backend="aot_eager"'
    assert all(finding.advice.startswith(advice) for finding in found)
    followed, findings = steps(loss, backend="aot_eager")
    assert (len(followed.backward_captures), findings) == (1, [])


def test_checkpointing_in_some_passes_is_named():
    def run(number):
        x = torch.ones(2, 4, requires_grad=True)
        model = nn.Linear(4, 4)
        y = checkpoint(model, x, use_reentrant=False) if number else model(x)
        y.pow(2).sum().backward()

    with dynx.watch() as watch, torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager"), dynamic=False):
        run(0)
        run(1)
    (finding,) = [finding for finding in watch.findings if finding.rule == "DX712"]
    assert finding.advice == "use activation checkpointing in every pass, or in none"


class Reentrant(torch.autograd.Function):
    """Its backward pass runs another one, a few times."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_() - 1
        return ctx.x.detach()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.x < 0:
            return gradient
        with torch.enable_grad():
            Reentrant.apply(ctx.x).sum().backward()
        return gradient


def reentrant(watch):
    torch._dynamo.reset()
    counters.clear()
    enabled = torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager"))
    with compiled_functions() as functions, watch, enabled:
        Reentrant.apply(torch.tensor(2.0, requires_grad=True)).sum().backward()
    return functions, dict(counters["compiled_autograd"])


def test_dynamo_compiles_no_function_of_a_watch_in_a_captured_pass():
    reentrant(nullcontext())  # torch also compiles functions of its own, until they are cached
    counts = reentrant(nullcontext())
    assert reentrant(dynx.watch()) == counts
