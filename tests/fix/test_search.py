"""The search for fixes with programs that are run: what is kept, what is rejected, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from textwrap import dedent
from types import SimpleNamespace

import pytest

from dynx.fix import Limits, Program
from dynx.fix._plan import Plan
from dynx.fix._program import Result
from dynx.fix._propose import experiments
from dynx.fix._report import report_of
from dynx.fix._search import Search, _worth_trying, first_run, search
from dynx.records import Finding, Location, WhatIf
from dynx.records.fix import Fix

PROGRAM = """
    import sys, time
    import torch

    FACTOR = 2

    @torch.compile(backend="eager")
    def f(x):
        y = x * FACTOR
        print("inside")
        return y + 1

    total = f(torch.ones(3)).sum()
    print(f"total {total.item():.3f} at {time.time() % 1:.9f}")
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(dedent(PROGRAM).lstrip())
    return Program(str(path))


@pytest.fixture(scope="module")
def base(program):
    return first_run(program, Limits())


def state_of(program, base, change, **limits):
    """Return a search in which each fix is written by `change`, a pair of texts."""
    with open(program.target) as opened:
        text = opened.read()

    def propose(plan: Plan, finding: Finding, fix: Fix) -> Iterator[Plan]:
        if "config" in fix.code:
            for old, new in change:
                assert old in text
                yield replace(plan, sources={program.target: text.replace(old, new)})

    return Search(program, Limits(**limits), propose, base)


def test_a_fix_that_removes_the_finding_is_kept_and_shown_as_a_diff(program, base):
    without = '    print("inside")\n    return y + 1', '    return y + 1\n\nprint("inside")'
    state = state_of(program, base, [without])
    (trial,) = search(state)
    assert trial.outcome == "kept", trial
    assert (trial.before.graph_breaks, trial.after.graph_breaks, trial.same_output) == (1, 0, True)
    report = report_of(state)
    assert report.remaining == ()
    assert '-    print("inside")' in report.diff
    assert "1 number of the output differ" in report.notes[0]


@pytest.mark.slow
def test_advice_that_changes_results_is_rejected(program, base):
    wrong = '    y = x * FACTOR\n    print("inside")', "    y = x * FACTOR + 1"
    also_wrong = '    print("inside")\n    return y + 1', '    return y + 1.001\n\nprint("inside")'
    state = state_of(program, base, [wrong, also_wrong])
    first, second = search(state)
    assert first.outcome == second.outcome == "other output"
    assert "inside" in first.reason
    assert "total 9.000" in second.reason
    report = report_of(state)
    assert report.diff == ""
    assert [finding.rule for finding in report.remaining] == ["DX201"]


@pytest.mark.slow
def test_fixes_that_raise_or_never_end_are_rejected(program, base, monkeypatch):
    monkeypatch.setattr("dynx.fix._search._LEAST", 1.0)
    monkeypatch.setattr("dynx.fix._search._MARGIN", 3.0)
    raises = '    print("inside")', "    raise ValueError('no')"
    hangs = '    print("inside")', "    time.sleep(1000)"
    state = state_of(program, base, [raises, hangs])
    first, second = search(state)
    assert (first.outcome, first.reason) == ("fails", "ValueError: no")
    assert second.outcome == "takes too long"


def test_nothing_is_tried_beyond_the_budget(program, base):
    state = state_of(program, base, [('    print("inside")\n', "")], budget=base.seconds / 2)
    assert list(search(state)) == []
    assert state.is_out_of_budget
    assert "not all fixes were tried" in report_of(state).notes[0]


@pytest.mark.slow
def test_values_are_compared_instead_of_the_output(program):
    limits = {"values": ("total",)}
    base = first_run(program, Limits(**limits))
    assert base.values["total"].item() == 9.0
    silent = '    print("inside")\n', ""
    wrong = '    print("inside")\n    return y + 1', "    return y + 2"
    (kept,) = search(state_of(program, base, [silent], **limits))
    (rejected,) = search(state_of(program, base, [wrong], **limits))
    assert (kept.outcome, rejected.outcome) == ("kept", "other output")


def test_nothing_is_marked_in_a_function_that_torch_traces(program, base):
    """The call of a method of a module inside of a compiled module: torch refuses to trace `mark_dynamic`."""
    tried = []

    def propose(plan, finding, fix):
        tried.append(fix.code)
        return iter(())

    found = base.run.compiles[0].location.own
    (finding,) = base.run.findings
    inside = Fix("mark", "mark_dynamic(x, 0)", found, Location(found.file, 11, "f"))
    outside = Fix("mark", "mark_dynamic(y, 0)", found, Location(found.file, 14, "<module>"))
    run = SimpleNamespace(findings=(replace(finding, fixes=(inside, outside)),), compiles=base.run.compiles)
    assert list(search(Search(program, Limits(), propose, replace(base, run=run)))) == []
    assert tried == ["mark_dynamic(y, 0)"]


def test_what_a_failure_says_is_its_exception_without_addresses_and_hints_of_torch(base):
    errors = """
        torch._dynamo.exc.Unsupported: Data-dependent branching
          Explanation: ... in <function g at 0x7f8842e10860>

        Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
    """
    assert replace(base, errors=errors).last_line == "torch._dynamo.exc.Unsupported: Data-dependent branching"
    errors = "AssertionError: forbidden <function mark at 0x7f8842e10860>\n"
    assert replace(base, errors=errors).last_line == "AssertionError: forbidden <function mark>"


def finding(rule: str, *fixes: Fix) -> Finding:
    return Finding(rule, rule, Location("model.py", 1, rule), 0.0, (), "", fixes=fixes)


def result_of(plan: Plan, *findings: Finding, exit_code: int = 0) -> Result:
    """Return what a program did of which each finding is one recompile."""
    empty = dict.fromkeys(("graph_breaks", "gave_up", "eager", "compiles"), ())
    run = SimpleNamespace(findings=findings, recompiles=findings, compile_seconds=1.0, **empty)
    return Result(plan, "", "", exit_code, 1.0, run)


MARK = Fix("mark", "mark_dynamic(x, 0)")


def test_a_fix_that_led_to_another_finding_is_tried_again_after_a_further_fix(program, monkeypatch):
    setting = Fix("statement", "torch._dynamo.config.allow_unspec_int_on_nn_module = True")
    size, number, behind = finding("DX102", MARK), finding("DX101", setting), finding("DX114")
    found = {(): (size, number), (MARK,): (behind, number), (setting,): (size,), (setting, MARK): ()}
    monkeypatch.setattr("dynx.fix._search.run", lambda program, plan, timeout: result_of(plan, *found[plan.fixes]))
    state = Search(program, Limits(), experiments, result_of(Plan(), size, number))
    outcomes = [(trial.fix, trial.outcome) for trial in search(state)]
    assert outcomes == [(MARK, "leads to another"), (setting, "kept"), (MARK, "kept")]
    assert report_of(state).remaining == ()


@pytest.mark.parametrize(("exit_code", "outcomes"), [(0, ["no effect"]), (1, ["fails", "fails"])])
def test_a_mark_is_written_otherwise_only_where_it_fails(program, monkeypatch, exit_code, outcomes):
    size = finding("DX102", MARK)
    monkeypatch.setattr("dynx.fix._search.run", lambda program, plan, timeout: result_of(plan, size, exit_code=exit_code))
    ways = [Plan(values=(way,)) for way in ("a mark", "another mark")]
    state = Search(program, Limits(), lambda plan, finding, fix: iter(ways), result_of(Plan(), size))
    assert [trial.outcome for trial in search(state)] == outcomes


def test_a_change_that_two_findings_propose_is_tried_once(program, monkeypatch):
    """Functions that one torch.compile compiles have one `dynamic=True`."""
    first, second = finding("DX102", Fix("option", "dynamic=True")), finding("DX114", Fix("option", "dynamic=True"))
    second = replace(second, location=replace(second.location, function="g"))
    monkeypatch.setattr("dynx.fix._search.run", lambda program, plan, timeout: result_of(plan, first, second))
    written = Plan(values=("torch.compile(f, dynamic=True)",))
    state = Search(program, Limits(), lambda plan, finding, fix: iter([written]), result_of(Plan(), first, second))
    assert [trial.outcome for trial in search(state)] == ["no effect"]


def test_what_is_kept_is_not_shown_as_tried_for_what_remains(program, monkeypatch):
    """Two findings of a function may have one title: after the fix of the first, the second keeps its advice."""
    size, again = finding("DX102", MARK), replace(finding("DX102"), advice="pad to one size")
    monkeypatch.setattr("dynx.fix._search.run", lambda program, plan, timeout: result_of(plan, again))
    state = Search(program, Limits(), experiments, result_of(Plan(), size, again))
    assert [trial.outcome for trial in search(state)] == ["kept"]
    (left,) = report_of(state).remaining
    assert (left.advice, left.trials) == ("pad to one size", ())


def test_fixes_that_helped_in_a_what_if_come_first_and_those_that_raise_are_not_run(program, base):
    """A run of the program takes minutes, a what-if less than a second: `dynx fix` runs only what may still help."""
    (finding,) = base.run.findings
    first, *others = (Fix("option", f"dynamic={number}") for number in range(4))
    tried = [(first, "raises"), (others[0], "not proven"), (others[1], "removes"), (others[2], "fewer")]
    what_ifs = tuple(
        WhatIf(0, "0", finding.location, finding.rule, fix, outcome, 4, 2 if outcome == "fewer" else 1)
        for fix, outcome in tried
    )
    found = replace(finding, fixes=(first, *others), what_ifs=what_ifs)
    run = SimpleNamespace(findings=(found,))
    state = Search(program, Limits(), experiments, replace(base, run=run))
    assert _worth_trying(state, found) == [others[1], others[2], others[0]]
    assert _worth_trying(state, replace(found, rule="DX999")) == [first, *others]


def test_a_fix_that_helps_together_with_another_is_tried_and_a_weaker_mark_than_one_in_vain_is_not(program, base):
    (finding,) = base.run.findings
    weaker, dynamic = replace(MARK, code="maybe_mark_dynamic(x, 0)", may_fail=False), Fix("option", "dynamic=True")
    about = 0, "0", finding.location, finding.rule
    what_ifs = (
        WhatIf(*about, MARK, "no effect", 4, 4),
        WhatIf(*about, dynamic, "no effect", 4, 4),
        WhatIf(*about, dynamic, "fewer", 4, 2, together=(Fix("statement", "a.b = 1"),)),
    )
    found = replace(finding, fixes=(MARK, weaker, dynamic), what_ifs=what_ifs)
    state = Search(program, Limits(), experiments, replace(base, run=SimpleNamespace(findings=(found,))))
    assert _worth_trying(state, found) == [dynamic]
