"""Names of guarded values behind torch's `wrap_inline` and in closures: those of the user's code."""

from __future__ import annotations

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
