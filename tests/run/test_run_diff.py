"""`Run.diff`: causes are matched by code and cause, not by line or order."""

from __future__ import annotations

import io

import pytest

from dynx import Run
from dynx.records import Backward, Compile, GaveUp, GraphBreak, GraphRecorded, Location, Reason, Recompile, Skip

HEADER = {"torch": "2.13.0", "python": "3.11.7", "command": ["dynx", "run", "train.py"]}


def at(line, function="step", file="/home/a/train.py"):
    return Location(file, line, function)


def run(*events, header=HEADER, **end):
    return Run(events, header, {"seconds": 10.0, "device": "cpu", **end})


def recompile(cause, where, number=1, seconds=0.5, code=""):
    return Recompile(0, f"0/{number}", where, (Reason("value", cause, "1", "2", where, rule="DX101", code=code),), seconds)


def graph_break(callee, where, count=1, code=""):
    return GraphBreak(where, (where,), "a builtin", kind="a builtin", callee=callee, count=count, code=code)


def changes(before, after):
    return [(cause.kind, cause.cause, cause.before, cause.after, cause.verdict) for cause in before.diff(after).causes]


def test_a_run_does_not_differ_from_itself():
    events = (
        Compile(0, "0/0", at(3), "compiled", 1.0),
        recompile("self.n", at(4)),
        graph_break("print", at(5)),
        GaveUp(0, "0/8", at(3), "recompile_limit", 8),
        Skip("an operator", at(6), count=2),
    )
    diff = run(*events).diff(run(*events))
    assert not diff.worse
    assert not diff.better
    assert {cause.verdict for cause in diff.causes} == {"same"}
    assert all(amount.before == amount.after for amount in diff.amounts)
    assert diff.slower == 1.0
    assert diff.notes == ()


def test_causes_are_matched_though_lines_and_order_changed():
    before = run(recompile("self.n", at(4), 1), graph_break("print", at(5)), recompile("self.n", at(4), 2))
    after = run(graph_break("print", at(50)), recompile("self.n", at(40), 1))
    assert changes(before, after) == [("recompile", "self.n", 2, 1, "fewer"), ("graph break", "print()", 1, 1, "same")]


def test_causes_in_another_file_or_in_a_renamed_function_are_matched():
    before = run(recompile("self.n", at(4)), recompile("k", at(9), code="    return x * k"))
    after = run(
        recompile("self.n", at(4, file="/home/b/steps.py")), recompile("k", at(3, "scaled", "/b.py"), code="return x * k")
    )
    assert {verdict for *_, verdict in changes(before, after)} == {"same"}


def test_the_same_cause_in_two_functions_is_two_causes():
    before = run(recompile("n", at(4, "f")), recompile("n", at(9, "g")))
    assert changes(before, run(recompile("n", at(9, "g")))) == [
        ("recompile", "n", 1, 0, "gone"),
        ("recompile", "n", 1, 1, "same"),
    ]


def test_worse_causes_come_first_then_those_that_cost_most():
    before = run(recompile("old", at(1), seconds=9.0))
    after = run(graph_break("print", at(2)), recompile("a", at(3), seconds=0.1), recompile("b", at(4), seconds=0.2))
    diff = before.diff(after)
    assert [cause.cause for cause in diff.causes] == ["b", "a", "print()", "old"]
    assert [cause.cause for cause in diff.worse] == ["b", "a", "print()"]
    assert [cause.cause for cause in diff.better] == ["old"]


def test_a_compile_that_fails_and_a_function_that_gives_up_are_worse_than_recompiles():
    failed = Compile(0, "0/0", at(1), "failed", 1.0, reason="BackendCompilerFailed")
    after = run(recompile("n", at(2)), GaveUp(0, "0/8", at(3), "recompile_limit", 8), failed)
    assert [cause.kind for cause in run().diff(after).worse] == ["failed", "gave up", "recompile"]


def test_totals():
    before = run(
        Compile(0, "0/0", at(1), "compiled", 2.0, phases={"trace": 1.5, "guards": 0.5}, nodes=10, guards=7),
        Backward(0, "0/0", 1.0),
        GraphRecorded("forward", 0.1, 1, 8, 64),
    )
    after = run(Compile(0, "0/0", at(1), "compiled", 6.0, phases={"trace": 6.0}, nodes=10, guards=9))
    diff = before.diff(after)
    amounts = {amount.name.strip(): (amount.before, amount.after) for amount in diff.amounts}
    assert amounts == {
        "compiling": (3.0, 6.0),
        "in Dynamo": (1.5, 6.0),
        "in guards": (0.5, 0.0),
        "in backward graphs": (1.0, 0.0),
        "the whole run": (10.0, 10.0),
        "compiles": (1, 1),
        "guards": (7, 9),
        "nodes": (10, 10),
        "CUDA graphs": (1, 0),
        "memory of CUDA graphs": (64, 0),
    }
    assert diff.slower == 2.0


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (run(), run(header=HEADER | {"torch": "2.15.0"}), "another torch: 2.13.0, then 2.15.0"),
        (run(), run(header=HEADER | {"command": ["other.py"]}), "another command: dynx run train.py, then other.py"),
        (run(), run(device="cuda"), "another device: cpu, then cuda"),
        (run(), Run((), HEADER), "the second run did not finish"),
        (
            Run((), HEADER, {"seconds": 10.0, "device": "cpu"}, ("line 3: not JSON",)),
            run(),
            "not all of the first run can be read",
        ),
    ],
)
def test_notes_say_why_runs_may_not_be_comparable(before, after, note):
    assert note in before.diff(after).notes


def test_screen_and_page():
    diff = run(recompile("self.n", at(4), seconds=1.0)).diff(run(graph_break("print", at(7))))
    page = diff._repr_html_()
    for text in ("worse", "better", "print()", "self.n", "train.py:7", "0 → 1", "1 → 0"):
        assert text in page


def test_all_worse_causes_are_on_the_terminal():
    from rich.console import Console

    breaks = [graph_break(f"call{number}", at(number)) for number in range(1, 21)]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(run().diff(run(*breaks)))
    text = console.export_text()
    assert all(f"call{number}()" in text for number in range(1, 21))
