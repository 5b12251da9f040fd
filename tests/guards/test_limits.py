"""Each backend has a limit of recompiles of its own, and reaching it is told."""

from __future__ import annotations

import warnings

import pytest
import torch

import dynx
from dynx._torch.hooks import installed
from dynx.errors import DynxWarning

pytestmark = pytest.mark.filterwarnings("ignore:backend .* looks like one of before:dynx.errors.DynxWarning")


def add(x):
    return x.sin() + 1


def test_each_backend_has_the_limit_it_was_given(backends):
    a = dynx.compile(add, backend=backends.named("a"), dynamic=False, per_backend_limit=4)
    b = dynx.compile(add, backend=backends.named("b"), dynamic=False)

    def call_with_many_sizes():
        for size in range(1, 12):
            a(torch.ones(size)), b(torch.ones(size))

    texts = [str(each.message) for each in warnings_of(call_with_many_sizes)]
    assert (backends.asked.count("a"), backends.asked.count("b")) == (4, 8)
    assert [("limit (4)" in each, "limit (8)" in each) for each in texts] == [(True, False), (False, True)]


def test_a_module_of_torch_is_named():
    f = dynx.compile(torch.nn.Linear(3, 3), backend="eager", dynamic=False, per_backend_limit=1)
    (warning,) = warnings_of(lambda: [f(torch.ones(n, 3)) for n in (2, 3)])
    assert str(warning.message).startswith("Linear.forward (")


def warnings_of(do):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        do()
    return [each for each in told if issubclass(each.category, DynxWarning) and "looks like" not in str(each.message)]


def test_a_limit_is_told_with_function_limit_and_reasons(backends):
    """Torch logs the last reason, and goes on eagerly."""
    f = dynx.compile(add, backend=backends.named("mine"), dynamic=False, per_backend_limit=2)
    f(torch.ones(1)), f(torch.ones(2))
    (only,) = warnings_of(lambda: [f(torch.ones(3)), f(torch.ones(4))])  # the second says nothing new
    assert only.filename == __file__
    line = add.__code__.co_firstlineno
    text = str(only.message)
    assert text.startswith(
        f"add ({__file__}:{line}) reached recompile_limit (2) with backend 'Backends.named.<locals>.backend'"
    )
    assert f"x.size()[0]: 2, now 3  ({__file__}:" in text
    assert f"x.size()[0]: 1, now 3  ({__file__}:" in text
    assert "dynx rule DX102" in text
    assert "per_backend_limit" in text


def test_nothing_of_torch_is_wrapped_for_that(backends):
    dynx.compile(add, backend=backends.named("a"))(torch.ones(1))
    assert installed() == ()
