"""Globals, and the state of torch around the call."""

from __future__ import annotations

import contextlib

import torch

from recompile_causes.base import STEADY, Cause, cause, ones, plus_one, times

GLOBAL_INT = 1
GLOBAL_TEXT = "relu"
GLOBAL_TENSOR = torch.ones(3)


@contextlib.contextmanager
def _global(name, value):
    before = globals()[name]
    globals()[name] = value
    try:
        yield
    finally:
        globals()[name] = before


@cause
def a_global_int():
    def scaled(x):
        return x * GLOBAL_INT  # HERE

    return Cause(
        scaled,
        (ones(3),),
        (ones(3),),
        "value",
        "G['GLOBAL_INT']",
        "1",
        "2",
        lambda: _global("GLOBAL_INT", 2),
        rule="DX103",
        advised=lambda: Cause(times, (ones(3), torch.tensor(1)), (ones(3), torch.tensor(2)), "", "", None, None),
    )


@cause
def a_global_text():
    def by_mode(x):
        return x.relu() if GLOBAL_TEXT == "relu" else x  # HERE

    return Cause(
        by_mode,
        (ones(3),),
        (ones(3),),
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

    return Cause(
        calls,
        (ones(3),),
        (ones(3),),
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

    return Cause(
        adds,
        (ones(3),),
        (ones(3),),
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
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "grad_mode",
        "grad_mode True",
        "grad_mode False",
        torch.no_grad,
        rule="DX108",
        advised=STEADY,
    )


@cause
def autocast():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "autocast(cpu)_enabled",
        "autocast(cpu)_enabled False",
        "autocast(cpu)_enabled True",
        lambda: torch.autocast("cpu", torch.bfloat16),
        rule="DX109",
        advised=STEADY,
    )


@cause
def deterministic_algorithms():
    @contextlib.contextmanager
    def switched_on():
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)

    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "deterministic_algorithms",
        "deterministic_algorithms False",
        "deterministic_algorithms True",
        switched_on,
        rule="DX109",
        advised=STEADY,
    )


@cause
def default_dtype():
    @contextlib.contextmanager
    def double():
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)

    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "default_dtype",
        "default_dtype float32",
        "default_dtype float64",
        double,
        rule="DX109",
        advised=STEADY,
    )


@cause
def default_device():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "torch_function_mode_stack",
        "torch_function_mode_stack empty",
        "torch_function_mode_stack DeviceContext(meta)",
        lambda: torch.device("meta"),
        rule="DX109",
        advised=STEADY,
    )


@cause
def inference_mode():
    @contextlib.contextmanager
    def inference():
        with torch.inference_mode():
            yield

    return Cause(
        plus_one,
        (ones(3),),
        (ones(3),),
        "global_state",
        "grad_mode",
        "grad_mode True",
        "grad_mode False",
        inference,
        rule="DX108",
        advised=STEADY,
    )
