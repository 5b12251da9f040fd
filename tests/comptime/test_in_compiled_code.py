"""Tools that are used while torch traces: in transforms, in callbacks, and called from compiled code."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dynx
from dynx.comptime import comptime, debug, probe
from dynx.errors import DynxWarning


def body(x, read):
    comptime(read)
    return x.sin()


def helper(x):
    return x.cos()


CALLS = {
    "plain": (lambda x, read: body(x, read), False),
    "vmap": (lambda x, read: torch.vmap(lambda row: body(row, read))(x), True),
    "grad": (lambda x, read: torch.func.grad(lambda t: body(t, read).sum())(x), True),
    "jacrev": (lambda x, read: torch.func.jacrev(lambda t: body(t, read))(x), True),
    "checkpoint": (lambda x, read: checkpoint(body, x, read, use_reentrant=False), True),
    "cond": (lambda x, read: torch.cond(x.sum() > 0, lambda t: body(t, read), lambda t: t.cos(), (x,)), True),
    "after vmap": (lambda x, read: body(torch.vmap(helper)(x), read), False),
}


@pytest.mark.parametrize(("function", "expected"), CALLS.values(), ids=CALLS)
def test_in_subgraph_is_true_in_bodies_of_operators_and_transforms(function, expected):
    found = []
    torch.compile(function, backend="eager")(torch.ones(2, 2), lambda ctx: found.append(ctx.in_subgraph))
    assert set(found) == {expected}


def test_a_compiled_function_in_a_transform_is_no_subgraph():
    """The transform was entered before torch began to trace."""
    found = []
    compiled = torch.compile(body, backend="eager")
    torch.func.grad(lambda t: compiled(t, lambda ctx: found.append(ctx.in_subgraph)).sum())(torch.ones(2))
    assert set(found) == {False}


def test_a_probe_set_in_a_callback_says_when_it_fires():
    probes = []

    def set_probe(ctx):
        probes.append(probe(helper, do=lambda ctx: None))

    def f(x):
        comptime(set_probe)
        return helper(x)

    with pytest.warns(
        DynxWarning, match=r"torch is compiling now: the probe at .* fires only in functions whose tracing begins later"
    ):
        torch.compile(f, backend="eager")(torch.ones(3))
    (p,) = probes
    assert p.hits == 1
    p.remove()


def test_a_probe_set_outside_of_a_compilation_warns_of_nothing():
    with warnings.catch_warnings(), probe(helper, do=lambda ctx: None) as p:
        warnings.simplefilter("error")
        torch.compile(helper, backend="eager")(torch.ones(3))
    assert p.hits == 1


def test_debug_called_in_compiled_code_debugs_the_function_alone(capsys):
    """It runs between two graphs: torch compiles no function of dynx."""

    def f(x):
        y = x.sin()
        return debug(helper, script=["n"])(y) + 1

    x = torch.ones(3)
    with dynx.watch() as run:
        torch.testing.assert_close(torch.compile(f, backend="eager")(x), x.sin().cos() + 1)
    assert {compilation.location.file for compilation in run.compiles} == {__file__}
    assert {re.sub(r".*\.", "", compilation.location.function) for compilation in run.compiles} == {"f", "helper"}
    assert "helper" in capsys.readouterr().out


def test_stepping_past_a_call_of_debug_shows_no_code_of_dynx(capsys):
    def f(x):
        return debug(helper, script=[])(x) + 1

    debug(f, script=["s"] * 8)(torch.ones(3))
    out = capsys.readouterr().out
    assert "dynx/" not in out
    assert "helper" in out
