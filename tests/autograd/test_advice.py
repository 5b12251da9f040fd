"""Advice on captures of backward passes helps when it is followed literally."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dynx


def trained(step, steps=4, dynamic=None):
    """Train in compiled code, with compiled autograd; return the number of captures, and the advice on recaptures."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    with torch._dynamo.config.patch(compiled_autograd=True), dynx.watch() as watch:

        def backward(loss):
            loss.backward()

        compiled = torch.compile(backward, backend="eager", dynamic=dynamic)
        for number in range(steps):
            step(model, number, compiled)
    assert not watch.troubles
    return len(watch.backward_captures), [each.advice for each in watch.findings if each.rule in RULES]


RULES = ("DX711", "DX712", "DX713", "DX714", "DX715")


def sizes(model, number, backward):
    model.zero_grad()
    backward(model(torch.ones(2 + number, 4)).sum())


def doubled(gradient):
    return gradient * 2


def hook_later(model, number, backward, *, always=False):
    def hook(gradient):
        return gradient * 2 if number else None

    model.zero_grad()
    handle = model.weight.register_hook(torch.compiler.disable(hook)) if number or always else None
    backward(model(torch.ones(2, 4)).sum())
    if handle is not None:
        handle.remove()


def accumulates(model, number, backward, *, cleared=False):
    if cleared:
        model.zero_grad()
    backward(model(torch.ones(2, 4)).sum())


def function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    return Twice


ONCE = function()


def class_in_each_pass(model, number, backward, *, once=False):
    model.zero_grad()
    backward((ONCE if once else function()).apply(model(torch.ones(2, 4))).sum())


def exponents(model, number, backward, *, same=False):
    model.zero_grad()
    backward(model(torch.ones(2, 4)).pow(2 if same else 2 + number).sum())


@pytest.mark.parametrize(
    ("program", "change", "advice"),
    [
        (hook_later, {"always": True}, "register the same hooks before every pass, from the first one on"),
        (accumulates, {"cleared": True}, "call zero_grad() before each backward(), which sets .grad to None"),
        (class_in_each_pass, {"once": True}, "define Twice once"),
        (exponents, {"same": True}, "one capture for each value is expected; to avoid it, pass the same value in every pass"),
    ],
)
def test_followed_advice_leaves_one_capture(program, change, advice):
    captures, found = trained(program)
    assert captures > 1
    assert found
    assert all(each.startswith(advice) for each in found)

    def changed(model, number, backward):
        program(model, number, backward, **change)

    assert trained(changed) == (1, [])


def test_dynamic_sizes_leave_one_capture():
    captures, (advice,) = trained(sizes)
    assert captures == 2
    assert advice.endswith("or torch.compile(dynamic=True) under the setting")
    assert trained(sizes, dynamic=True) == (1, [])
