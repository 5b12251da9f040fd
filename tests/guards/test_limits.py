"""Each backend has a recompile limit of its own, and reaching it warns."""

from __future__ import annotations

import warnings

import pytest
import torch

import dynx
from dynx._torch.hooks import installed
from dynx.errors import DynxWarning

pytestmark = pytest.mark.filterwarnings("ignore:backend .* has the same code as an earlier backend:dynx.errors.DynxWarning")


def add(x):
    return x.sin() + 1


def test_each_backend_has_its_own_recompile_limit(backends):
    a = dynx.compile(add, backend=backends.named("a"), dynamic=False, per_backend_limit=4)
    b = dynx.compile(add, backend=backends.named("b"), dynamic=False)

    def call_with_many_sizes():
        for size in range(1, 12):
            a(torch.ones(size)), b(torch.ones(size))

    texts = [str(warning.message) for warning in warnings_of(call_with_many_sizes)]
    assert (backends.compiled.count("a"), backends.compiled.count("b")) == (4, 8)
    assert [("limit (4)" in text, "limit (8)" in text) for text in texts] == [(True, False), (False, True)]


def test_limit_warning_names_a_torch_nn_module():
    f = dynx.compile(torch.nn.Linear(3, 3), backend="eager", dynamic=False, per_backend_limit=1)
    (warning,) = warnings_of(lambda: [f(torch.ones(n, 3)) for n in (2, 3)])
    assert str(warning.message).startswith("Linear.forward (")


def warnings_of(program):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program()
    return [
        warning for warning in caught if issubclass(warning.category, DynxWarning) and "same code" not in str(warning.message)
    ]


def test_limit_warning_names_the_function_the_limit_and_the_reasons(backends):
    """torch logs only the last reason, and runs the function eagerly."""
    f = dynx.compile(add, backend=backends.named("mine"), dynamic=False, per_backend_limit=2)
    f(torch.ones(1)), f(torch.ones(2))
    (warning,) = warnings_of(lambda: [f(torch.ones(3)), f(torch.ones(4))])  # Python shows a warning once for each call site
    assert warning.filename == __file__
    line = add.__code__.co_firstlineno
    text = str(warning.message)
    assert text.startswith(
        f"add ({__file__}:{line}) reached recompile_limit (2) with backend 'Backends.named.<locals>.backend'"
    )
    assert f"x.size()[0]: 2, now 3  ({__file__}:" in text
    assert f"x.size()[0]: 1, now 3  ({__file__}:" in text
    assert "dynx rule DX102" in text
    assert "per_backend_limit" in text


def test_limit_warning_says_that_no_entry_is_for_the_key_of_the_call(monkeypatch):
    """With torch 2.11, where the limit counts entries of other keys too, the list of reasons was empty."""
    f = dynx.compile(add, backend="eager", dynamic=False, per_backend_limit=1)
    f(torch.ones(1))
    monkeypatch.setattr("dynx.guards._compile.warnings.entries_of", lambda code: [])
    (warning,) = warnings_of(lambda: f(torch.ones(2)))
    assert "none of them is for the key of this call\n  raise the limit" in str(warning.message)


@pytest.mark.usefixtures("torch_names")
def test_limit_warning_installs_no_torch_hook(backends):
    dynx.compile(add, backend=backends.named("a"))(torch.ones(1))
    assert installed() == ()
