"""Assertions that a captured function does what the eager one does."""

from __future__ import annotations

import torch


def assert_agree(run, eager, make_args, *, calls=5, grad_mode=torch.no_grad):
    """Assert that `run` and `eager` return equal results, and mutate equal arguments equally, in several calls.

    `make_args` is called for each function with the same seed, so that arguments that share memory do so for both.
    """
    with grad_mode():
        for step in range(calls):
            outcomes = []
            for fn in (run, eager):
                torch.manual_seed(step)
                args = make_args()
                outcomes.append((fn(*args), args))
            torch.testing.assert_close(*outcomes)


def assert_same_grads(model, twin):
    """Assert that corresponding parameters of two models have equal gradients, or both have none."""
    for param, twin_param in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(param.grad, twin_param.grad)


def assert_same_params(model, twin):
    """Assert that the parameters of two models, and their gradients, are equal."""
    for param, twin_param in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(param, twin_param)
    assert_same_grads(model, twin)
