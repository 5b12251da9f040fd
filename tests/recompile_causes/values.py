"""Python values as arguments, defaults and closure variables."""

from __future__ import annotations

import contextlib
import enum
import functools

import torch

from recompile_causes.base import DYNAMIC, STEADY, Cause, cause, changing, ones, plus_one, times


def minus_one(x):
    return x - 1


@cause
def an_int_argument():
    return Cause(
        times,
        (ones(3), 2),
        (ones(3), 3),
        "value",
        "n",
        "2",
        "3",
        rule="DX114",
        advised=lambda: Cause(times, (ones(3), torch.tensor(2)), (ones(3), torch.tensor(3))),
    )


@cause
def a_float_argument():
    return Cause(times, (ones(3), 2.5), (ones(3), 3.5), "value", "n", "2.5", "3.5", rule="DX114", advised=DYNAMIC)


@cause
def a_bool_argument():
    return Cause(times, (ones(3), True), (ones(3), False), "value", "n", "True", "False", rule="DX114", advised=STEADY)


@cause
def a_text_argument():
    def by_mode(x, mode):
        return x.relu() if mode == "relu" else x.tanh()  # HERE

    return Cause(
        by_mode, (ones(3), "relu"), (ones(3), "tanh"), "value", "mode", "'relu'", "'tanh'", rule="DX114", advised=STEADY
    )


@cause
def an_argument_that_is_none():
    def masked(x, mask):
        return x + 1 if mask is None else x * mask  # HERE

    return Cause(masked, (ones(3), None), (ones(3), ones(3)), "none", "mask", "None", "a Tensor", rule="DX114", advised=STEADY)


@cause
def the_type_of_an_argument():
    def scaled(x, n):
        return x * len(n)  # HERE

    pair = (1, 2)
    return Cause(
        scaled,
        (ones(3), [1, 2]),
        (ones(3), pair),
        "type",
        "n",
        "<class 'list'>",
        "<class 'tuple'>",
        rule="DX120",
        advised=lambda: Cause(scaled, (ones(3), [1, 2]), (ones(3), list(pair))),
    )


@cause
def an_enum_argument():
    class Mode(enum.Enum):
        UP = 1
        DOWN = 2

    def by_mode(x, mode):
        return x + 1 if mode is Mode.UP else x - 1  # HERE

    return Cause(
        by_mode,
        (ones(3), Mode.UP),
        (ones(3), Mode.DOWN),
        "object",
        "mode",
        "an_enum_argument.<locals>.Mode.UP",
        "an_enum_argument.<locals>.Mode.DOWN",
        rule="DX110",
        advised=STEADY,
    )


@cause
def a_closed_over_number():
    n = 1

    def scaled(x):
        return x * n  # HERE

    @contextlib.contextmanager
    def changed():
        nonlocal n
        n = 2
        yield
        n = 1

    return changing(scaled, "value", "n", "1", "2", changed, rule="DX114", advised=DYNAMIC)


@cause
def a_default():
    def scaled(x, by=(1, 2)):
        return x * by[0]  # HERE

    return Cause(scaled, (ones(3),), (ones(3), (3, 2)), "value", "by[0]", "1", "3", rule="DX114", advised=DYNAMIC)


@cause
def a_function_argument():
    def applied(x, fn):
        return fn(x)  # HERE

    return Cause(
        applied,
        (ones(3), lambda x: x + 1),
        (ones(3), minus_one),
        "function",
        "fn",
        "a_function_argument.<locals>.<lambda>",
        "minus_one",
        rule="DX111",
        advised=lambda: Cause(applied, (ones(3), plus_one), (ones(3), plus_one)),
    )


@cause
def a_partial_argument():
    def applied(x, fn):
        return fn(x)  # HERE

    first, second = functools.partial(times, n=2), functools.partial(times, n=3)
    return Cause(
        applied,
        (ones(3), first),
        (ones(3), second),
        "value",
        "fn.keywords['n']",
        "2",
        "3",
        rule="DX114",
        advised=DYNAMIC,
        guarded_in=times,
    )


@cause
def a_class_argument():
    def built(x, cls):
        return cls()(x)  # HERE

    first, second = (ones(3), torch.nn.ReLU), (ones(3), torch.nn.Tanh)
    return Cause(built, first, second, "object", "cls", "ReLU", "Tanh", rule="DX110", advised=STEADY)
