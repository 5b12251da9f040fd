"""A long report shows what costs most: findings that differ only by their line are one row, the others are counted."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from dynx import Run
from dynx.cli import _parser, main
from dynx.cli.arguments import split
from dynx.records import BreakState, Compile, GraphBreak, Location, Reason, Recompile
from dynx.report import terminal

MAIN = Location("train.py", 41, "main")


def screen(run, width=80, **options):
    console = Console(width=width, file=io.StringIO())
    console.print(terminal(run, **options))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def recompile(number, seconds, name="x", function="main"):
    location = Location("train.py", 100 + number, function)
    reason = Reason("size", f"{name}.size()[1]", "3", "4", location, holder="argument")
    return Recompile(0, f"{number}/1", location, (reason,), seconds)


def printed(line, function="Block.forward", callee="print"):
    here = Location("model.py", line, function)
    return GraphBreak(here, (here,), f"break {line}", kind="Failed to trace builtin operator", callee=callee)


def state(line):
    return BreakState(f"{line}/0", 0, Location("model.py", line, "Block.forward"), "break", "", "", (), (), "", 0, ())


@pytest.fixture
def many():
    """Return a run with 17 findings in different functions; finding 16 costs 1.6 s, finding 15 1.5 s, and so on."""
    records = [recompile(number, number / 10, f"x{number}", f"f{number}") for number in range(17)]
    return Run((Compile(0, "0/0", MAIN, "compiled", 1.0), *records))


def test_by_default_the_ten_most_expensive_findings_are_shown_and_the_others_counted(many):
    text = screen(many, file=Path("run.dynx"))
    assert text.count(" DX102 ") == 11  # with "dynx rule DX102 explains"
    assert "+7 more findings, 2.1 s: dynx show run.dynx --top 17" in text
    assert "f7" in text
    assert "f6" not in text


def test_top_n_shows_n_findings(many):
    text = screen(many, top=2)
    assert text.count("mark_dynamic") == 2
    assert "+15 more findings, 10.5 s: see run.findings" in text


@pytest.mark.parametrize("options", [{"top": 17}, {"full": True}], ids=str)
def test_no_finding_is_counted_where_all_are_shown(many, options):
    text = screen(many, **options)
    assert text.count("mark_dynamic") == 17
    assert "more finding" not in text


def test_command_in_the_line_of_hidden_findings_shows_them_all(many, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many.save("run.dynx")
    assert main(["show", "run.dynx"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "more findings" in line]
    assert main(line.partition(": dynx ")[2].split()) == 0
    shown = capsys.readouterr().out
    assert shown.count("mark_dynamic") == 17
    assert "more findings" not in shown


def test_top_of_dynx_run_is_an_option_of_dynx_and_not_of_the_program():
    _, own, rest, _ = split(_parser(), ["run", "--top", "3", "train.py", "--top", "5"])
    assert (own, rest) == (["run", "--top", "3", "--", "train.py"], ["--top", "5"])


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_dynx_show_top_must_be_a_positive_integer(value, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["show", "run.dynx", f"--top={value}"])
    assert f"{value} is not a positive integer" in capsys.readouterr().err


def test_long_table_of_records_without_advice_shows_the_most_expensive_and_counts_the_others():
    reason = Reason("other", "x", None, None, None)
    run = Run(tuple(Recompile(0, f"{n}/1", Location("a.py", n, f"f{n}"), (reason,), n / 10) for n in range(1, 15)))
    text = screen(run)
    table = text[text.index("Recompiles without advice") :]
    assert re.findall(r"  (f\d+)$", table, re.M) == [f"f{n}" for n in range(14, 4, -1)]
    assert "+4 more, 1.0 s: --full shows all" in table
    assert "more" not in screen(run, full=True)


def test_findings_that_differ_only_by_their_line_are_one_row_with_all_lines():
    run = Run((printed(12), printed(19), printed(30)))
    text = screen(run)
    assert "model.py:12  Block.forward  also :19, :30" in text
    assert text.count("print() splits the graph") == 1


def test_findings_of_another_function_or_cause_keep_a_row_of_their_own():
    """Two functions may need two different changes."""
    run = Run((printed(12), printed(19, "Head.forward"), printed(30, callee="warnings.warn")))
    text = screen(run)
    assert "also" not in text
    for place in ("model.py:12  Block.forward", "model.py:19  Head.forward", "model.py:30  Block.forward"):
        assert place in text


def test_row_names_the_other_methods_of_the_class():
    text = screen(Run((printed(12), printed(19), printed(30, "Block.loss"))))
    assert "model.py:12  Block.forward  also :19, :30 Block.loss" in text


def test_findings_of_nested_functions_with_one_parent_keep_a_row_of_their_own():
    text = screen(Run((printed(12, "make.<locals>.first"), printed(19, "make.<locals>.second"))))
    assert "also" not in text
    assert "make.<locals>.second" in text


def test_one_row_for_several_lines_has_the_post_mortem_of_each():
    states = [state(12), state(19)]
    run = Run((printed(12), printed(19), *states))
    assert "(post-mortem 1, 2)" in screen(run, 200)
    page = run._repr_html_()
    assert "post-mortem 1</a>" in page
    assert "post-mortem 2</a>" in page


def test_notebook_has_the_remaining_findings_in_a_closed_section(many):
    page = many._repr_html_()
    assert "<summary>+7 more findings, 2.1 s</summary>" in page
    assert page.count("mark_dynamic") == 17


@pytest.mark.parametrize("outcome", ["skipped", "failed", "gave_up"])
def test_compilation_without_a_reason_or_a_graph_does_not_show_none(outcome):
    run = Run((Compile(0, "0/0", MAIN, outcome, 1.0),))
    for text in (screen(run, full=True), run._repr_html_()):
        assert "None" not in text
    assert "torch gives no reason" in run._repr_html_()


def test_full_report_has_the_compiles_of_one_function_below_their_total():
    run = Run(
        (
            Compile(0, "0/0", MAIN, "compiled", 1.0),
            Compile(0, "1/0", Location("train.py", 60, "other"), "skipped", 0.5, reason="no operators"),
            Compile(0, "0/1", MAIN, "compiled", 2.0),
        )
    )
    text = screen(run, full=True)
    rows = [line.split()[:2] for line in text[text.index(" id ") :].splitlines()[1:5]]
    assert rows == [["2x", "main"], ["0/0", "0"], ["0/1", "0"], ["1/0", "other"]]
    assert "3.0 s" in text
    assert "Skipped compilations, run eagerly\n      1x  no operators" in text


def test_table_of_compiles_on_a_narrow_terminal_folds_a_long_function_name():
    """A name that is cut off cannot be searched for."""
    phases = {"trace": 0.1, "aot": 0.1, "backend": 0.1, "guards": 0.1}
    here = Location("model.py", 1, "GPT2LMHeadModel.forward")
    text = screen(Run((Compile(0, "0/0", here, "compiled", 0.4, (), phases),)), full=True)
    assert "…" not in text
