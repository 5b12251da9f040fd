"""Fixes of graph breaks, tried on the call whose trace they ended: gone, still there, followed by another, or an error."""

from __future__ import annotations

import math
import operator

import pytest
import torch

from dynx.session import Watch

CONFIG = "torch._dynamo.config"
X = torch.ones(3)


def printed(x):
    y = x + 1
    print("traced")
    return y * 2


def printed_in_a_loop(x):
    for number in range(2):
        print(number)
        x = x + 1
    return x


def read(x):
    y = x.sum().item()
    return x + y


def read_and_branch(x):
    y = x.sum().item()
    if y > 0:
        return x + 1
    return x - 1


def read_and_print(x):
    y = x.sum().item()
    print("now")
    return x + y


def masked(x):
    return x[x > 0] * 2


def decoded(logp):
    best = logp.argmax(-1)
    return ["".join(chr(97 + i) for i in row[m].tolist()) for row, m in zip(best, best != 0, strict=True)]


def tried(fn, *args, **options):
    """Return the watch of one call of a compiled function, in which all fixes are tried."""
    with Watch(what_if=math.inf) as watch:
        torch.compile(fn, backend="eager", **options)(*args)
    assert not watch.troubles
    return watch


def results(watch):
    """Return the outcomes of settings; those of rewrites are in `test_rewrites.py`."""
    settings = [each for each in watch.what_ifs if each.fix.kind != "rewrite"]
    return {each.fix.code.removeprefix(f"{CONFIG}."): each.outcome for each in settings}


@pytest.mark.parametrize("fn", [printed, printed_in_a_loop])
def test_a_print_that_may_be_reordered_breaks_no_graph(fn):
    watch = tried(fn, X)
    assert results(watch) == {"reorderable_logging_functions.add(print)": "removes"}
    (finding,) = watch.findings
    first = f"{CONFIG}.reorderable_logging_functions.add(print) (proven: no graph break); or drop it"
    assert finding.advice.startswith(first)
    assert torch._dynamo.config.reorderable_logging_functions == set()


def read_then_printed(x):
    y = x.sum().item()
    torch._dynamo.graph_break()
    print("now")
    return y


def test_a_part_in_which_nothing_is_left_to_compile_breaks_no_graph():
    """torch skips a resume function without operations."""
    with Watch(what_if=math.inf) as watch:
        torch.compile(read_then_printed, backend="eager")(X)
    assert results(watch)["reorderable_logging_functions.add(print)"] == "removes"


def test_a_value_that_is_only_used_can_be_captured():
    watch = tried(read, X)
    assert results(watch) == {"capture_scalar_outputs = True": "removes"}
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch._dynamo.reset()
        assert not tried(read, X).graph_breaks


def test_a_value_that_is_branched_on_leads_to_another_graph_break_and_is_not_advised():
    """With the setting, the branch that reads the number breaks the graph instead."""
    watch = tried(read_and_branch, X)
    assert results(watch) == {"capture_scalar_outputs = True": "leads to another"}
    (what_if,) = watch.what_ifs
    assert what_if.then.location.line == what_if.graph_break[1] + 1
    assert what_if.result.startswith("leads to another graph break, at ")
    assert all("capture_scalar_outputs" not in finding.advice for finding in watch.findings)


def test_a_graph_break_that_the_program_has_anyway_is_not_held_against_a_fix():
    """The trace with the fix goes on to the next graph break, in code that was traced as a resume function without it."""
    watch = tried(read_and_print, X)
    advice = {finding.rule: finding.advice for finding in watch.findings}
    assert advice["DX202"].startswith(f"{CONFIG}.capture_scalar_outputs = True (proven: no graph break)")
    assert advice["DX201"].startswith(f"{CONFIG}.reorderable_logging_functions.add(print) (proven: ")


def test_a_setting_that_raises_is_not_advised():
    """Followed, `capture_dynamic_output_shape_ops` raised GuardOnDataDependentSymNode in a program of a user."""
    watch = tried(decoded, torch.arange(24.0).view(2, 3, 4))
    (what_if,) = watch.what_ifs
    assert (what_if.fix.code, what_if.outcome) == (f"{CONFIG}.capture_dynamic_output_shape_ops = True", "raises")
    assert what_if.result == "raises GuardOnDataDependentSymNode"
    assert all("capture_dynamic" not in finding.advice for finding in watch.findings)


def test_sizes_that_depend_on_data_can_be_captured():
    assert results(tried(masked, X)) == {"capture_dynamic_output_shape_ops = True": "removes"}


def test_a_break_that_fails_under_fullgraph_is_tried_too():
    with Watch(what_if=math.inf) as watch, pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(printed, backend="eager", fullgraph=True)(X)
    assert results(watch) == {"reorderable_logging_functions.add(print)": "removes"}


def test_a_fix_is_tried_once_for_a_break_that_is_met_again():
    """A recompile meets the same graph break: trying the fix again would cost time and tell nothing new."""
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(read, backend="eager", dynamic=False)
        for size in (3, 4, 5):
            compiled(torch.ones(size))
    breaks = [each for each in watch.events if type(each).__name__ == "WhatIf" and each.graph_break is not None]
    assert len(breaks) == 1


@pytest.mark.parametrize(("fn", "attribute"), [(printed, "reason"), (read, "kind")])
def test_the_graph_breaks_of_the_run_are_the_same(fn, attribute):
    """The traces with a fix break graphs of their own, which must not appear in the run."""
    of_watch = operator.attrgetter(attribute)
    with Watch() as without:
        torch.compile(fn, backend="eager")(X)
    torch._dynamo.reset()
    with_them = tried(fn, X)
    assert [of_watch(each) for each in with_them.graph_breaks] == [of_watch(each) for each in without.graph_breaks]
    assert [each.count for each in with_them.graph_breaks] == [each.count for each in without.graph_breaks]


def test_a_fix_after_which_a_size_stays_dynamic_is_advised():
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(read, backend="eager")
        for size in (3, 4, 5):
            compiled(torch.ones(size))
    assert [each.result for each in watch.what_ifs if each.rule == "DX202"] == ["no graph break"]
