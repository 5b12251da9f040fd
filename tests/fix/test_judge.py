"""When a trial is kept, from records of two runs: no kind of cost grows; fewer recompiles in not much more time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynx import Run
from dynx.fix._judge import Comparison, compiled_functions, judge, traced_functions
from dynx.fix._output import Tolerance
from dynx.fix._plan import Plan
from dynx.fix._program import Result
from dynx.records import Compile, Fix, GaveUp, GraphBreak, Location, Reason, Recompile


def at(function: str, line: int = 1) -> Location:
    return Location("/home/a/train.py", line, function)


def compiled(function: str, frame: int, seconds: float = 1.0) -> Compile:
    return Compile(0, f"{frame}/0", at(function), "compiled", seconds)


def recompile(number: int) -> Recompile:
    reason = Reason("size", "x.size()[0]", "3", "4", at("f", 2), holder="argument")
    return Recompile(0, f"0/{number}", at("f"), (reason,), 0.5)


def broken() -> GraphBreak:
    return GraphBreak(at("f", 3), (at("f", 3),), "a builtin", kind="a builtin", callee="print")


def result(*events) -> Result:
    return Result(Plan(), "done\n", "", 0, 1.0, Run(events))


BEFORE = result(compiled("f", 0), compiled("g", 1), recompile(1), recompile(2))
MARK = Fix("mark", "mark_dynamic(x, 0)")


@pytest.mark.parametrize(
    ("fix", "after", "outcome"),
    [
        (MARK, result(compiled("f", 0), compiled("g", 1)), "kept"),
        (MARK, result(compiled("f", 0), compiled("g", 1), recompile(1)), "kept"),
        (MARK, result(compiled("f", 0), compiled("g", 1), recompile(1), recompile(2)), "no effect"),
        (MARK, result(compiled("f", 0), broken(), broken(), broken()), "costs more"),
        (MARK, result(compiled("f", 0), compiled("g", 1), *map(recompile, (1, 2, 3))), "costs more"),
        (MARK, result(compiled("f", 0), compiled("g", 1), broken()), "leads to another"),  # one kind of cost grows
        (MARK, result(compiled("f", 0)), "kept"),  # g is inlined now
        (MARK, result(compiled("f", 0, 1.09), compiled("g", 1, 1.09)), "kept"),
        (MARK, result(compiled("f", 0, 2.0), compiled("g", 1, 0.8)), "costs more"),  # 40 % longer, for two recompiles
        (MARK, result(compiled("f", 0, 1.6), compiled("g", 1), recompile(1)), "costs more"),  # longer, for one recompile
        (MARK, result(compiled("f", 0, 1.4), compiled("g", 1), recompile(1)), "kept"),  # 0.4 s: a machine's noise
    ],
)
def test_outcome(fix, after, outcome):
    (finding,) = BEFORE.run.findings
    assert judge(finding, fix, BEFORE, after, Comparison(Tolerance())).outcome == outcome


def test_a_fix_that_breaks_the_graph_at_another_statement_too_is_rejected():
    """A number that became a tensor: fewer recompiles, and another graph break is met less often."""
    (finding, *_) = BEFORE.run.findings
    functions = compiled("f", 0), compiled("g", 1)
    before = result(*functions, recompile(1), recompile(2), *[broken()] * 3)
    read = replace(broken(), code="t = steps[self.cursor]", kind="Tensor.item()")
    after, with_new_code = result(*functions, broken(), read), result(*functions, compiled("h", 2), broken(), read)
    assert judge(finding, MARK, before, after, Comparison(Tolerance())).outcome == "leads to another"
    assert judge(finding, MARK, before, with_new_code, Comparison(Tolerance())).outcome == "kept"


def test_a_higher_limit_after_which_a_function_runs_eagerly_is_rejected():
    """The versions that were compiled before the limit are no longer used then."""
    limit = Fix("statement", "torch._dynamo.config.recompile_limit = 32")
    before = result(compiled("f", 0), recompile(1), GaveUp(0, "0/2", at("f"), "recompile_limit", 8))
    (finding,) = before.run.findings
    higher = result(compiled("f", 0), recompile(1), recompile(2))
    assert judge(finding, limit, before, higher, Comparison(Tolerance())).outcome == "kept"
    skipped = replace(compiled("f", 0), id="0/3", outcome="skipped")
    reason = replace(broken(), resumable=False, compiles=(skipped.key,))
    eager = result(*higher.run.events, skipped, reason)
    assert len(eager.run.eager) == 1
    assert judge(finding, limit, before, eager, Comparison(Tolerance())).outcome != "kept"


def test_the_line_that_calls_compiled_code_of_a_library_is_not_compiled_itself():
    library = Location("/env/site-packages/lib/act.py", 30, "act", library="lib", caller=at("main"))
    run = result(replace(compiled("f", 0), location=library)).run
    assert compiled_functions(run) == traced_functions(run) == {(library.file, "act")}


def test_a_function_of_which_nothing_was_compiled_was_traced():
    run = result(compiled("f", 0), replace(compiled("g", 1), outcome="skipped")).run
    assert {name for _, name in compiled_functions(run)} == {"f"}
    assert {name for _, name in traced_functions(run)} == {"f", "g"}


def test_a_fix_after_which_as_much_is_left_says_what_is_left():
    """It removes the recompile of one function, and another function is compiled again instead."""
    (finding,) = BEFORE.run.findings
    other = replace(recompile(1), id="1/1", location=at("g"), reasons=(replace(recompile(1).reasons[0], location=at("g", 2)),))
    after = result(compiled("f", 0), compiled("g", 1), other, replace(other, id="1/2"))
    trial = judge(finding, MARK, BEFORE, after, Comparison(Tolerance()))
    assert trial.outcome == "leads to another"
    assert trial.reason == "x.size(0) 3, then 4"
    no_rule = replace(other, reasons=(replace(other.reasons[0], kind="other", source="", text=""),))
    after = result(compiled("f", 0), compiled("g", 1), no_rule, replace(no_rule, id="1/2"))
    assert judge(finding, MARK, BEFORE, after, Comparison(Tolerance())).reason == "2 recompiles remain"
