"""Reasons that another kind of reason hides: constants beside sizes, arguments of backward(), hooks of modules, views."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dynx
from dynx import autograd


def passes(step, count, **options):
    """Run `step(number)`, which runs a backward pass, in a block; return the log."""
    torch._dynamo.reset()
    with autograd.capture(backend=None, **options) as log:
        for number in range(count):
            step(number)
    return log


def reasons(log):
    return [[(each.kind, each.subject, each.before, each.after) for each in capture.reasons] for capture in log[1:]]


def gradient_of(loss, *shape):
    """Return a step: the gradient of a loss of a new leaf of this shape."""

    def step(number):
        loss(torch.ones(*shape, requires_grad=True), number).sum().backward()

    return step


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (lambda x, number: x.sum((number,)), "dim"),
        (lambda x, number: x.var((number + 1,)), "dim"),
        (lambda x, number: torch.fft.rfft(x, dim=number).real, "dim"),
        (lambda x, number: x.unfold(1, 2, 1 + number), "step"),
        (lambda x, number: F.avg_pool2d(x, 1 + number), "kernel_size"),
    ],
)
def test_a_constant_of_an_operator_is_no_size(loss, name, dynamic):
    log = passes(gradient_of(loss, 1, 4, 4), 2, dynamic=dynamic)
    assert len(log) == 2
    assert (log[1].reason.kind, log[1].reason.subject) == ("value", name)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, number: x.roll(number + 1),
        lambda x, number: x[:, :, number],
        lambda x, number: F.pad(x, (0, number + 1)),
        lambda x, number: F.conv2d(x, torch.ones(1, 1, 2, 2), padding=number + 1),
    ],
)
def test_a_number_that_torch_makes_dynamic_is_a_size(loss):
    log = passes(gradient_of(loss, 1, 4, 4), 3)
    assert [each.reason.kind for each in log] == ["first", "shape"]
    assert len(passes(gradient_of(loss, 1, 4, 4), 3, dynamic=True)) == 1


def test_a_constant_does_not_hide_another():
    log = passes(gradient_of(lambda x, number: x.pow(2 + number).sum(number), 4, 4), 2)
    assert reasons(log) == [[("value", "dim", "(0,)", "(1,)"), ("value", "exponent", "2", "3")]]


@pytest.mark.parametrize("join", [torch.stack, torch.cat])
def test_the_number_of_tensors_that_are_joined(join):
    log = passes(gradient_of(lambda x, number: join([x.sin()] * (2 + number)), 4), 2)
    assert reasons(log)[0][0] == ("structure", "number of inputs", "2", "3")
    assert log[1].reason.node.name.startswith(("Stack", "Cat"))


def assigned(x, number):
    y = x * 2
    y[number] = 3.0
    return y


def test_a_size_of_a_view_that_is_written_to_cannot_be_read():
    log = passes(gradient_of(assigned, 4, 4), 3)
    (reason,) = log[1].reasons
    assert str(reason).startswith("CopySlices (NodeCall 2): another size or index, which cannot be read at ")
    assert (len(log), len(passes(gradient_of(assigned, 4, 4), 3, dynamic=True))) == (2, 1)


def test_the_number_of_losses():
    def step(number):
        x = torch.ones(2, requires_grad=True)
        torch.autograd.backward([x.sin().sum()] * (1 + number))

    assert reasons(passes(step, 3)) == [[("request", "losses", "1", "2")], [("request", "losses", "2", "3")]]


@pytest.mark.parametrize("call", ["backward", "grad"])
def test_other_inputs(call):
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))

    def step(number):
        model.zero_grad()
        inputs = list(model.parameters() if number == 0 else model[2].parameters())
        loss = model(torch.ones(2, 2)).sum()
        loss.backward(inputs=inputs) if call == "backward" else torch.autograd.grad(loss, inputs)

    assert ("request", "argument inputs", "4 tensors", "2 tensors") in reasons(passes(step, 2))[0]


def test_create_graph():
    def step(number):
        (torch.ones(2, requires_grad=True) * 2).sum().backward(create_graph=number == 1)

    assert reasons(passes(step, 2)) == [[("request", "argument create_graph", "False", "True")]]


@pytest.mark.parametrize("method", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_hook_of_a_module(method):
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())

    def step(number):
        if number == 1:
            getattr(model[1], method)(lambda *args: None)
        model.zero_grad()
        model(torch.ones(2, 2)).sum().backward()

    assert reasons(passes(step, 3)) == [[("hook", "nodes of full backward hooks of modules", "0", "2")]]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_the_capture_with_the_fewest_differences_is_compared(order):
    """The passes: as it is; with a gradient to accumulate into; with another exponent."""
    x = torch.ones(2, requires_grad=True)

    def step(number):
        x.grad = torch.ones(2) if order[number] == 1 else None
        x.pow(3 if order[number] == 2 else 2).sum().backward()

    assert reasons(passes(step, 3))[1] == [("value", "exponent", "2", "3")]


def test_what_is_predicted_is_the_reason():
    model = nn.Linear(2, 2)
    torch._dynamo.reset()
    with autograd.capture(backend=None) as log:
        for reduce in (torch.sum, torch.mean, torch.sum):
            loss = reduce(model(torch.ones(2, 2)))
            verdict, before = log.would_capture(loss), len(log)
            loss.backward()
            assert (len(log) > before) == bool(verdict)
            assert [str(each) for each in verdict.reasons] == [str(each) for each in log[-1].reasons]
    assert len(log) == 3


def test_hooks_of_several_tensors_compile_the_code_of_torch_that_calls_them():
    model, calls = nn.Linear(4, 4), []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: print(end=""))
    torch._dynamo.reset()
    with dynx.watch() as watch, autograd.capture(backend="eager"):
        for _ in range(3):
            model.zero_grad()
            calls.append(model(torch.ones(2, 4)).sum().backward())
    (finding,) = (each for each in watch.findings if each.rule == "DX716")
    assert finding.title == "code of torch that a captured backward pass calls is compiled again: the number of dims 1, then 2"
    assert finding.advice.startswith("one compile for each is expected")
