"""Names that get a value later, and values that are neither numbers nor text."""

from __future__ import annotations

import decimal
import enum
import functools
import math
import pathlib
import types

import numpy as np
import torch

from support.changing_values.kinds import CASES, case, linear


@case
def default_of_a_class_that_an_object_overrides():
    class Settings:
        factor = 1.0

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    settings.factor = 2.0


@case
def default_of_a_base_class_that_a_class_overrides():
    class Base:
        factor = 1.0

    class Settings(Base):
        pass

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    Settings.factor = 2.0


@case
def attribute_that_hasattr_looks_for():
    settings = types.SimpleNamespace()
    yield lambda x: linear(x) * (2.0 if hasattr(settings, "doubled") else 1.0)
    settings.doubled = True


@case
def attribute_with_a_default_in_getattr():
    settings = types.SimpleNamespace()
    yield lambda x: linear(x) * getattr(settings, "factor", 1.0)
    settings.factor = 2.0


@case
def builtin_function_that_a_global_hides():
    scope = {"linear": linear}
    exec("def f(x):\n    return linear(x) * abs(-2.0)", scope)
    yield scope["f"]
    scope["abs"] = lambda number: 3.0


@case
def method_that_an_object_overrides():
    class Scale:
        def apply(self, y):
            return y

    scale = Scale()
    yield lambda x: scale.apply(linear(x))
    scale.apply = lambda y: y * 2


@case
def attribute_of_a_user_module_that_appears():
    module = types.ModuleType("settings_of_a_test")
    yield lambda x: linear(x) * getattr(module, "factor", 1.0)
    module.factor = 2.0


@case
def default_that_an_object_with_other_new_names_overrides():
    class Settings:
        factor = 1.0

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    settings.other = 3
    settings.factor = 2.0
    del settings.other


class Mode(enum.Enum):
    SINGLE = 1
    DOUBLE = 2


def replaced(before, after, use):
    """Return a case in which an attribute is replaced by another value."""

    def make():
        settings = types.SimpleNamespace(value=before)
        yield lambda x: use(linear(x), settings.value)
        settings.value = after

    return make


def multiply(y, value):
    return y * float(value)


CASES |= {
    "member_of_an_enum_replaced": replaced(Mode.SINGLE, Mode.DOUBLE, lambda y, mode: y * 2 if mode is Mode.DOUBLE else y),
    "number_of_numpy": replaced(np.float32(1), np.float32(2), multiply),
    "decimal_number": replaced(decimal.Decimal(1), decimal.Decimal(2), multiply),
    "path": replaced(pathlib.Path("a"), pathlib.Path("bb"), lambda y, path: y * len(str(path))),
    "function_of_torch": replaced(torch.tanh, torch.relu, lambda y, activation: activation(y)),
    "function_of_the_library": replaced(math.sin, math.cos, lambda y, function: y * function(1.0)),
    "partial_function": replaced(
        functools.partial(torch.add, alpha=1), functools.partial(torch.add, alpha=2), lambda y, add: add(y, y)
    ),
    "class_of_the_user": replaced(
        type("One", (), {"factor": 1}), type("Two", (), {"factor": 2}), lambda y, kind: y * kind.factor
    ),
    "dtype": replaced(torch.float32, torch.float64, lambda y, dtype: y.to(dtype)),
    "slice": replaced(slice(0, 1), slice(1, 2), lambda y, part: y[part]),
    "text_of_a_subclass": replaced(
        type("Text", (str,), {})("a"), type("Text", (str,), {})("bb"), lambda y, text: y * len(text)
    ),
    "none": replaced(None, 2.0, lambda y, factor: y if factor is None else y * factor),
    "frozen_set": replaced(frozenset((1,)), frozenset((1, 2)), lambda y, numbers: y * len(numbers)),
    "range": replaced(range(1), range(2), lambda y, numbers: y * len(numbers)),
}


@case
def numbers_in_a_list_of_enums():
    modes = [Mode.SINGLE]
    yield lambda x: linear(x) * modes[0].value
    modes[0] = Mode.DOUBLE


@case
def text_of_a_subclass_with_attributes():
    class Text(str):
        pass

    text = Text("a")
    text.factor = 1.0
    yield lambda x: linear(x) * text.factor
    text.factor = 2.0
