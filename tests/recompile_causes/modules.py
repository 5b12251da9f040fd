"""Modules and optimizers."""

from __future__ import annotations

import contextlib

import torch
from support.restoring import attribute, item

from recompile_causes.base import STEADY, Cause, cause, changing, ones

RELU, TANH = "torch.nn.modules.activation.ReLU", "torch.nn.modules.activation.Tanh"


@cause
def an_int_of_a_module():
    class Steps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 1

        def forward(self, x):
            return x * self.step  # HERE

    module = Steps()
    return changing(
        module, "value", "self.step", "1", "2", lambda: attribute(module, "step", 2), rule="DX101", advised=_with_a_buffer
    )


def _with_a_buffer():
    class Steps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("step", torch.tensor(1))

        def forward(self, x):
            return x * self.step

    module = Steps()
    return Cause(module, (ones(3),), (ones(3),), change=lambda: contextlib.nullcontext(module.step.add_(1)))


@cause
def training_and_evaluation():
    module = torch.nn.Sequential(torch.nn.Dropout(0.0))

    class Dropped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            return x * 2 if self.training else x - 1  # HERE

    whole = Dropped()
    return changing(
        whole,
        "value",
        "self.training",
        "True",
        "False",
        lambda: attribute(whole, "training", value=False),
        rule="DX107",
        advised=STEADY,
    )


@cause
def a_replaced_submodule():
    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.ReLU()

        def forward(self, x):
            return self.act(x)  # HERE

    module = Holder()
    return changing(
        module,
        "type",
        "self._modules['act']",
        f"<class '{RELU}'>",
        f"<class '{TANH}'>",
        lambda: attribute(module, "act", torch.nn.Tanh()),
        rule="DX120",
        advised=STEADY,
    )


@cause
def a_replaced_parameter():
    module = torch.nn.Linear(3, 3)

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = module

        def forward(self, x):
            return x @ self.linear.weight  # HERE

    wider = torch.nn.Parameter(torch.ones(3, 5))
    return changing(
        Holder(),
        "size",
        "self._modules['linear']._parameters['weight'].size()[1]",
        "3",
        "5",
        lambda: attribute(module, "weight", wider),
        rule="DX102",
        advised=STEADY,
    )


@cause
def an_optimizer_setting():
    parameter = torch.nn.Parameter(ones(3))
    parameter.grad = ones(3)
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def step(x):
        optimizer.step()  # HERE
        return x + 1

    return changing(
        step,
        "value",
        "self.param_groups[0]['lr']",
        "0.1",
        "0.2",
        lambda: item(optimizer.param_groups[0], "lr", 0.2),
        rule="DX113",
        advised=_with_a_tensor_as_lr,
    )


def _with_a_tensor_as_lr():
    parameter = torch.nn.Parameter(ones(3))
    parameter.grad = ones(3)
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.1))

    def step(x):
        optimizer.step()
        return x + 1

    lr = optimizer.param_groups[0]["lr"]
    return Cause(step, (ones(3),), (ones(3),), change=lambda: contextlib.nullcontext(lr.fill_(0.2)))
