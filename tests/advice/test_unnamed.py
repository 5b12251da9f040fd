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


def scaled(x, values):
    for value in values.tolist():
        x = x * value
    return x


def test_the_values_of_a_list_share_one_finding():
    """`.tolist()` leaves a list on the stack, of which every item fails its guard."""
    with dynx.watch() as watch:
        compiled = torch.compile(scaled, backend="eager")
        for first in range(3):
            compiled(torch.ones(3), torch.arange(first, first + 4))
    named = [finding for finding in watch.findings if "<value of line" in finding.title]
    assert len({reason.source for each in watch.recompiles for reason in (*each.reasons, *each.further)}) > 2
    assert len(named) == 1
