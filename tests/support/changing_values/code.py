"""Values that code reads which Python or autograd calls without its name."""

from __future__ import annotations

import torch
from torch import nn

from support.changing_values.kinds import case, linear


class Double(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Double.factor


@case
def attribute_that_a_backward_reads():
    def gradient(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(Double.apply(linear(x)).sum(), x)[0]

    Double.factor = 1.0
    yield gradient
    Double.factor = 2.0


@case
def closure_that_a_backward_reads():
    settings = {"factor": 1.0}

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient * settings["factor"]

    def gradient(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(Scaled.apply(linear(x)).sum(), x)[0]

    yield gradient
    settings["factor"] = 2.0


@case
def operators_of_a_class():
    settings = {"factor": 1.0}

    class Number:
        def __rmul__(self, other):
            return other * settings["factor"]

        def __enter__(self):
            settings["entered"] = 1
            return self

        def __exit__(self, *error):
            pass

        def __bool__(self):
            return settings["factor"] > 0

    number = Number()

    def f(x):
        with number:
            return linear(x) * number if number else linear(x)

    yield f
    settings["factor"] = 2.0


@case
def setter_of_a_property():
    factors = [1.0]

    class Settings:
        @property
        def factor(self):
            return self.__dict__["kept"]

        @factor.setter
        def factor(self, value):
            self.__dict__["kept"] = value * factors[0]

    def f(x):
        settings = Settings()
        settings.factor = 2.0
        return linear(x) * settings.factor

    yield f
    factors[0] = 3.0


@case
def property_of_a_class_replaced():
    class Settings:
        factor = property(lambda self: 1.0)

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    Settings.factor = property(lambda self: 2.0)


@case
def static_method_of_a_class_replaced():
    class Settings:
        @staticmethod
        def factor():
            return 1.0

    yield lambda x: linear(x) * Settings.factor()
    Settings.factor = staticmethod(lambda: 2.0)


@case
def iterator_of_the_user():
    class Numbers:
        def __init__(self):
            self.number = 0.0

        def __next__(self):
            return self.number

    numbers = Numbers()
    yield lambda x: linear(x) * next(numbers)
    numbers.number = 2.0


@case
def class_of_an_object_replaced():
    class One:
        def factor(self):
            return 1.0

    class Two:
        def factor(self):
            return 2.0

    number = One()
    yield lambda x: linear(x) * number.factor()
    number.__class__ = Two


@case
def code_of_a_function_replaced():
    def factor():
        return 1.0

    def other():
        return 2.0

    yield lambda x: linear(x) * factor()
    factor.__code__ = other.__code__


@case
def hook_of_a_submodule():
    settings = {"factor": 1.0}
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).requires_grad_(False)
    model[0].register_forward_hook(lambda module, args, result: result * settings["factor"])
    yield lambda x: linear(model(x))
    settings["factor"] = 2.0


SCALE = 1.0


class Scaled(nn.Module):
    def forward(self, x):
        return x * SCALE


@case
def global_that_a_submodule_reads():
    global SCALE
    model = nn.Sequential(linear, Scaled())
    yield lambda x: model(x)
    SCALE = 2.0
    yield
    SCALE = 1.0
