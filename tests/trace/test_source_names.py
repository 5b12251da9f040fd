"""Names of guarded values behind torch's `wrap_inline` and in closures: those of the user's code."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dynx


class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.updates = 0

    @torch.no_grad()
    def forward(self, params):
        self.updates += 1
        return params * self.updates


class Other(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return x + 1


def test_number_of_a_module_with_a_no_grad_forward_is_named_with_self():
    """torch names it `fn.updates`, since it compiles the decorated forward through its own wrapper."""
    average = torch.compile(Average(), backend="eager")
    with dynx.watch() as w:
        for _ in range(3):
            average(torch.ones(2))
    assert {reason.source for recompile in w.recompiles for reason in recompile.reasons} == {"self.updates"}
    assert [finding.rule for finding in w.findings] == ["DX101"]


def test_entries_of_another_function_behind_the_same_wrapper_are_no_reasons():
    other, average = torch.compile(Other(), backend="eager"), torch.compile(Average(), backend="eager")
    with dynx.watch() as w:
        other(torch.ones(2))
        average(torch.ones(2))
        average(torch.ones(2))
    assert w.recompiles[-1].reasons[0].source == "self.updates"
    assert "fn" not in {reason.source for reason in w.recompiles[-1].reasons}


def penalty_of(strength):
    def penalty(x):
        return x * strength

    return penalty


def test_number_in_the_closure_of_an_argument_is_named_with_both_values():
    compiled = torch.compile(lambda x, penalty: penalty(x), backend="eager")
    with dynx.watch() as w:
        compiled(torch.ones(2), penalty_of(0.5))
        compiled(torch.ones(2), penalty_of(0.25))
    (recompile,) = w.recompiles
    assert (recompile.reasons[0].source, recompile.reasons[0].expected, recompile.reasons[0].got) == ("strength", "0.5", "0.25")


def logged(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@logged
def weighted(x, weight):
    return x * weight


NUMBERS = []


@torch.compiler.disable
def drawn():
    return NUMBERS.pop()


def assigned(x):
    number = drawn()
    return x * number


def in_an_expression(x):
    return x * drawn()


def as_second_operand(x):
    number = x.sum() * drawn()
    return x * number


def first_of(*tensors):
    return tensors[0] * 2


def source_of_recompile(function, first, second):
    """Return the source of the first failed guard in the only recompile of two calls."""
    compiled = torch.compile(function, backend="eager")
    with dynx.watch() as w:
        compiled(*first)
        compiled(*second)
    (recompile,) = w.recompiles
    return recompile.reasons[0].source


def test_argument_of_a_decorated_function_is_named_by_its_parameter():
    """torch names it `args[1]`, since the wrapper of the decorator is what it compiles."""
    x = torch.ones(2)
    assert source_of_recompile(weighted, (x, 2), (x, 3)) == "weight"


def test_argument_of_a_builtin_module_is_named_by_the_parameter_of_its_forward():
    """torch names it `args[0]`, since it compiles `nn.Linear` through its own wrapper."""
    assert source_of_recompile(nn.Linear(2, 2), (torch.ones(2),), (torch.ones(3, 2),)) == "input"


def test_positional_argument_without_a_parameter_is_named_by_its_index():
    x = torch.ones(2)
    assert source_of_recompile(first_of, (x,), (x.double(),)) == "tensors[0]"


def test_result_of_the_call_that_breaks_the_graph_is_named_by_the_variable_it_is_assigned_to():
    """torch names it `___stack0`."""
    NUMBERS[:] = [3, 2]
    assert source_of_recompile(assigned, (torch.ones(2),), (torch.ones(2),)) == "number"


@pytest.mark.parametrize("function", [in_an_expression, as_second_operand])
def test_result_of_a_call_that_breaks_the_graph_inside_an_expression_is_named_by_its_line(function):
    """It has no name in the user's code: the variable is assigned the result of the whole expression."""
    NUMBERS[:] = [3, 2]
    line = function.__code__.co_firstlineno + 1
    assert source_of_recompile(function, (torch.ones(2),), (torch.ones(2),)) == f"<value of line {line}>"
