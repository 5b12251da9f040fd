"""Global variables, and torch's global state such as grad mode."""

from __future__ import annotations

import sys

import torch
from support.restoring import attribute, setting

from recompile_causes.base import STEADY, Cause, ambient, cause, changing, ones, times

GLOBAL_INT = 1
GLOBAL_TEXT = "relu"
GLOBAL_TENSOR = torch.ones(3)


def _global(name, value):
    return attribute(sys.modules[__name__], name, value)


@cause
def a_global_int():
    def scaled(x):
        return x * GLOBAL_INT  # HERE

    return changing(
        scaled,
        "value",
        "G['GLOBAL_INT']",
        "1",
        "2",
        lambda: _global("GLOBAL_INT", 2),
        rule="DX103",
        advised=lambda: Cause(times, (ones(3), torch.tensor(1)), (ones(3), torch.tensor(2))),
    )


@cause
def a_global_text():
    def by_mode(x):
        return x.relu() if GLOBAL_TEXT == "relu" else x - 1  # HERE

    return changing(
        by_mode,
        "value",
        "G['GLOBAL_TEXT']",
        "'relu'",
        "'tanh'",
        lambda: _global("GLOBAL_TEXT", "tanh"),
        rule="DX103",
        advised=STEADY,
    )


def global_function(x):
    return x + 1


@cause
def a_global_function():
    def calls(x):
        return global_function(x)  # HERE

    return changing(
        calls,
        "function",
        "G['global_function']",
        "global_function",
        "a_global_function.<locals>.<lambda>.<locals>.<lambda>",
        lambda: _global("global_function", lambda x: x - 1),
        rule="DX111",
        advised=STEADY,
    )


@cause
def a_global_tensor():
    def adds(x):
        return x + GLOBAL_TENSOR  # HERE

    return changing(
        adds,
        "dtype",
        "G['GLOBAL_TENSOR']",
        "Float",
        "Double",
        lambda: _global("GLOBAL_TENSOR", ones(3).double()),
        rule="DX105",
        advised=STEADY,
    )


@cause
def grad_mode():
    return ambient("grad_mode", "True", "False", torch.no_grad, "DX108")


@cause
def autocast():
    return ambient("autocast(cpu)_enabled", "False", "True", lambda: torch.autocast("cpu", torch.bfloat16), "DX109")


@cause
def deterministic_algorithms():
    return ambient(
        "deterministic_algorithms",
        "False",
        "True",
        lambda: setting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, value=True),
        "DX109",
    )


@cause
def default_dtype():
    return ambient(
        "default_dtype",
        "float32",
        "float64",
        lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
        "DX109",
    )


@cause
def default_device():
    return ambient("torch_function_mode_stack", "empty", "DeviceContext(meta)", lambda: torch.device("meta"), "DX109")


@cause
def inference_mode():
    return ambient("grad_mode", "True", "False", torch.inference_mode, "DX108")
