"""How what-ifs change the advice of a finding, and what a budget leaves out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import dynx
from dynx import Run
from dynx.advice.proof.what_ifs import of_parts, with_what_ifs
from dynx.records import Alternative, Fix, Location, WhatIf
from dynx.records.finding import joined
from dynx.session import Watch

TRIED = WhatIf(0, "0", Location("a.py", 1, "f"), "DX102", Fix("option", "dynamic=True"), "removes", 5, 1)
FAILED = replace(TRIED, fix=Fix("mark", "mark_dynamic(x, 0)"), outcome="raises", reason="ConstraintViolationError", compiles=0)
ADVICE = "mark_dynamic(x, 0) before the call; or pad to one size"
UNPROVEN = "mark_dynamic(x, 0) before the call (not proven); or pad to one size"
PROVEN = "mark_dynamic(x, 0) before the call (proven: 1 compile, not 5); or pad to one size"
SETTING = Fix("statement", "a.b = 1")
CUT = replace(FAILED, outcome="not proven", reason="the time for what-ifs was used up")
ALTERNATIVES = (Alternative("mark_dynamic(x, 0) before the call", "mark_dynamic"), Alternative("pad to one size"))


@pytest.mark.parametrize(
    ("what_ifs", "advice"),
    [
        ([], ADVICE),
        ([TRIED], f"compile with dynamic=True (proven: 1 compile, not 5); or {UNPROVEN}"),
        ([TRIED, CUT], "compile with dynamic=True (proven: 1 compile, not 5); or pad to one size"),
        ([FAILED], "pad to one size"),
        ([TRIED, FAILED], "compile with dynamic=True (proven: 1 compile, not 5); or pad to one size"),
        (
            [replace(TRIED, outcome="fewer", compiles=4)],
            f"{UNPROVEN}; or compile with dynamic=True (proven: 4 compiles, not 5)",
        ),
        (
            [replace(TRIED, outcome="fewer", compiles=2)],
            f"compile with dynamic=True (proven: 2 compiles, not 5); or {UNPROVEN}",
        ),
        ([replace(TRIED, outcome="no effect", compiles=5)], UNPROVEN),
        ([replace(TRIED, outcome="not proven", reason="the time for what-ifs was used up")], UNPROVEN),
        ([replace(TRIED, outcome="leads to another", reason="a graph break")], UNPROVEN),
        (
            [replace(TRIED, together=(SETTING,)), replace(TRIED, outcome="no effect", compiles=5)],
            f"compile with dynamic=True, together with a.b = 1 (proven together: 1 compile, not 5); or {UNPROVEN}",
        ),
        ([replace(TRIED, outcome="fewer", compiles=2, together=(SETTING,)), replace(TRIED, fix=FAILED.fix)], PROVEN),
        ([replace(TRIED, fix=FAILED.fix)], PROVEN),
    ],
)
def test_what_is_proven_comes_first_and_what_is_refuted_is_not_advised(what_ifs, advice):
    assert joined(with_what_ifs(ALTERNATIVES, what_ifs)) == advice


def test_parts_of_a_function_are_added_up():
    """A graph break splits a function: a fix helps if it helps all of its parts."""
    other = replace(TRIED, frame="1", calls=3, compiles=2, outcome="fewer")
    (both,) = of_parts([[TRIED], [other]], [TRIED.fix])
    assert (both.outcome, both.calls, both.compiles) == ("fewer", 8, 3)
    assert of_parts([[TRIED], []], [TRIED.fix]) == ()
    (refuted,) = of_parts([[TRIED], [replace(other, outcome="raises", reason="E")]], [TRIED.fix])
    assert refuted.outcome == "raises"


def test_a_fix_that_does_not_help_another_part_is_not_proven():
    """`dynamic=True` is an argument for the whole function: it may cost more after a graph break than it saves before."""
    other = replace(TRIED, frame="2", calls=3, compiles=3, outcome="no effect")
    (found,) = of_parts([[TRIED]], [TRIED.fix], [other])
    assert found.outcome == "not proven"
    (found,) = of_parts([[TRIED]], [TRIED.fix], [replace(other, compiles=1, outcome="removes")])
    assert found.outcome == "removes"


def test_a_run_file_has_the_last_state_of_each_what_if(tmp_path):
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with Watch(tmp_path / "run.dynx", what_if=math.inf) as watch:
        for size in (3, 4, 5):
            compiled(torch.ones(size))
    loaded = Run.load(tmp_path / "run.dynx")
    assert loaded.what_ifs == watch.what_ifs
    without_option = Fix("option", "dynamic=None")
    assert {(each.calls, each.compiles, each.fix == without_option) for each in loaded.what_ifs} == {
        (3, 1, False),
        (3, 2, True),
    }
    assert loaded.findings[0].what_ifs == watch.findings[0].what_ifs
    assert loaded.findings[0].advice.startswith("mark_dynamic(x, 0) before the call (proven: 1 compile, not 3)")


def test_a_watch_tries_nothing_unless_asked():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with dynx.watch() as watch:
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    assert watch.what_ifs == ()
    torch._dynamo.reset()
    with dynx.watch(what_if=True) as watch:
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    assert watch.what_ifs[0].helps


def test_a_finding_gets_the_fixes_of_its_advice_whatever_the_budget():
    """With backend="eager" a trace takes as long as the compilation: the tenth is used up at once."""
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with Watch(what_if=1e-6) as watch:
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    tried = {each.fix.name: each for each in watch.what_ifs}
    assert tried["mark_dynamic"].helps
    cut = [each for name, each in tried.items() if name not in ("mark_dynamic", "dynamic=None")]  # the others are not advised
    assert {each.reason for each in cut} == {"the time for what-ifs was used up"}
    assert not any(each.is_proven for each in cut)


def test_a_table_names_all_fixes_that_were_tried_together():
    assert replace(TRIED, together=(SETTING,)).code == "dynamic=True, together with a.b = 1"
    assert TRIED.code == "dynamic=True"


def test_a_fix_is_not_refuted_by_the_calls_before_its_cause():
    """Modes and classes of arguments are compiled for themselves, whatever the sizes: three calls before another size comes."""

    @torch.compile(backend="eager")
    def scaled(x, weights):
        return x * weights["w"]

    weights = {"w": torch.nn.Parameter(torch.ones(()))}
    with Watch(what_if=math.inf) as w:
        for size in (4, 4, 6, 8):
            scaled(torch.ones(size), weights)
            scaled(torch.ones(size), {"w": weights["w"].detach()})
            with torch.no_grad():
                scaled(torch.ones(size), weights)
    finding = next(finding for finding in w.findings if finding.rule == "DX102")
    assert finding.advice.startswith("mark_dynamic(x, 0) before the call (proven: 3 compiles, not 6)")
