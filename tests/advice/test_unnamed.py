"""Values on Python's stack at a graph break, which no variable holds: advice does not name them."""

import numpy
import pytest
import torch

import dynx

RESULTS = []


@torch._dynamo.disable
def result():
    return RESULTS.pop()


def used(x):
    return torch.sin(x) * len(str(result()))


def counted(x):
    return torch.sin(x) * len(result() or "ab")


@pytest.mark.parametrize("results", [["a", "b"], [None, "a"], [[1], [1, 2]], [{"a": 1}, {"b": 1}], [(1,), [1]]], ids=str)
@pytest.mark.parametrize("fn", [used, counted])
def test_advice_names_only_what_the_user_can_write(fn, results):
    RESULTS[:] = results
    with dynx.watch() as watch:
        compiled = torch.compile(fn, backend="eager")
        for _ in results:
            compiled(torch.ones(3))
    assert watch.findings
    assert all("<" not in finding.advice and "___stack" not in finding.title for finding in watch.findings)


def interpolated(x):
    return (numpy.interp(x, [0.0, 1.0], [1.0, 2.0]) * 2).sum()


def test_an_array_is_renamed_inside_the_conversion_to_a_tensor():
    """torch names it `___from_numpy(___stack0)`."""
    with dynx.watch() as watch:
        compiled = torch.compile(interpolated, backend="eager")
        for size in (3, 4):
            compiled(numpy.ones(size))
    assert all("___stack" not in f"{reason.source} {reason.expected}" for each in watch.recompiles for reason in each.reasons)
    assert any("<value of line" in reason.source for each in watch.recompiles for reason in each.reasons)
