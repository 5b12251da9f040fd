"""`dynamic=False` that makes a function recompile: a what-if drops it, and the advice says so first where it helps most."""

from __future__ import annotations

import math

import pytest
import torch

from dynx.records.fix import Fix
from dynx.session import Watch

WITHOUT = Fix("option", "dynamic=None")


def compiles_of(dynamic, sizes=(3, 4, 5, 6)):
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager", dynamic=dynamic)
    with Watch(what_if=math.inf) as watch:
        for size in sizes:
            compiled(torch.ones(size, 2))
    return watch


@pytest.mark.parametrize("dynamic", [False, None])
def test_dropping_dynamic_false_is_tried_where_it_was_passed(dynamic):
    watch = compiles_of(dynamic)
    tried = [each for each in watch.what_ifs if each.fix == WITHOUT]
    assert len(tried) == (1 if dynamic is False else 0)
    assert all(compiled.automatic_dynamic is (dynamic is None) for compiled in watch.compiles)
    assert ("drop dynamic=False" in watch.findings[0].advice) is (dynamic is False)


def test_the_prediction_is_what_happens_without_it():
    (tried,) = (each for each in compiles_of(False).what_ifs if each.fix == WITHOUT)
    torch._dynamo.reset()
    assert tried.compiles == len(compiles_of(None).compiles) == 2


def test_a_parameter_that_torchs_wrapper_hides_is_marked_in_a_what_if():
    """torch compiles its own modules through a wrapper, whose frame has `args[0]` instead of `input`."""
    (mark,) = (each for each in compiles_of(False).what_ifs if each.fix.name == "mark_dynamic")
    assert mark.fix.marks[0].source == "input"
    assert (mark.calls, mark.compiles) == (4, 1)
