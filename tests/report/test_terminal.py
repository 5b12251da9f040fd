"""The terminal screen of a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dynx import Run
from dynx.records import Compile, GraphBreak, Location
from dynx.report import terminal

HERE = Location("train.py", 41, "main")


def screen(run, width=80, *, full=False, top=None, file=None, **options):
    console = Console(width=width, file=io.StringIO(), **options)
    console.print(terminal(run, full=full, top=top, file=file))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_narrow_terminal_report_has_a_paragraph_per_finding(run):
    assert (
        screen(run)
        == """\
 dynx run train.py                                  torch 2.13.0 · cpu · 31.2 s

 2.0 s compiling   1 compile   9 recompiles   2 graph breaks   1 gave up
 Dynamo 1.0 s · backend eager 500 ms · guards 250 ms · backward graphs 250 ms
 FX graph cache 1 miss

  7.2 s  DX301  model.py:58  Net.forward
         gave up after 8 compiles (DX101): self.step 7, now 8
         → make self.step a tensor buffer, updated in place

 500 ms  DX201  train.py:12  main
         print() splits the graph in two
         → drop it, or move it out of the compiled function

 Recompiles without advice
  125 ms  1/1  act  x: 2, then 3
          train.py:12  main  (in lib, nn/act.py:30)

 Graph breaks without advice
      1x  A break of tomorrow
          model.py:58  Net.forward

 not recorded by dynx
      1x  graph breaks: this torch has none

 dynx rule DX301 explains"""
    )


def test_wide_terminal_report_has_one_line_per_finding(run):
    lines = screen(run, width=160).splitlines()
    (line,) = [line for line in lines if "DX301" in line and "explains" not in line]
    assert "7.2 s" in line
    assert "gave up after 8 compiles (DX101): self.step 7, now 8" in line
    assert "make self.step a tensor buffer, updated in place" in line
    assert max(map(len, lines)) <= 160


def test_full_terminal_report_adds_every_table(run):
    text = screen(run, full=True)
    for title in (
        "Recompiles",
        "Graph breaks",
        "Gave up",
        "Became dynamic",
        "Compiles",
        "Compile caches",
        "Skipped by",
        "Warnings of",
    ):
        assert f"\n {title}" in text
    assert "L['x'] size 1: 128, then 256" in text


@pytest.mark.parametrize("width", [40, 80, 160])
def test_terminal_report_fits_the_terminal_width(run, width):
    assert all(len(line) <= width for line in screen(run, width=width, full=True).splitlines())


def test_terminal_report_in_a_pipe_has_no_escape_sequences(run):
    assert "\x1b" not in screen(run)


def test_terminal_report_respects_the_no_color_variable(run, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    coloured = screen(run, force_terminal=True)
    assert "\x1b[32m" not in coloured
    assert "\x1b[36m" not in coloured


def test_report_of_a_run_without_findings_says_that_there_is_nothing_to_change():
    run = Run((Compile(0, "0/0", HERE, "compiled", 1.0),), {"command": ["dynx", "run", "x.py"]}, {"seconds": 1.0})
    assert "nothing to change" in screen(run)


def test_a_graph_break_that_needs_no_change_is_named_below():
    line = Location("train.py", 7, "update")
    kind = "Call to `torch._dynamo.graph_break()`"
    of_optimizer = GraphBreak(line, (line,), kind, "DX221", kind=kind, code="opt.step()")
    text = screen(Run((Compile(0, "0/0", HERE, "compiled", 1.0), of_optimizer)))
    assert "nothing to change" in text
    assert "1 graph break needs no change: dynx rule DX221" in text
    assert "without advice" not in text


def test_report_of_a_run_that_compiled_nothing_does_not_claim_success():
    """The program may never have reached its compiled function."""
    text = screen(Run(header={"command": ["dynx", "run", "x.py"]}, end={"seconds": 1.0}))
    assert "nothing was compiled" in text
    assert "nothing to change" not in text


def test_report_of_a_run_with_a_failed_compile_does_not_claim_success():
    failed = Compile(0, "0/0", HERE, "failed", 1.0, reason="ConstraintViolationError: marked as dynamic but specialized")
    text = screen(Run((failed,), {}, {"seconds": 1.0}))
    assert "1 failed" in text
    assert "ConstraintViolationError" in text
    assert "nothing to change" not in text


def test_report_counts_many_damaged_run_file_lines_instead_of_listing_all():
    text = screen(Run(problems=tuple(f"line {n}: not JSON" for n in range(10_000))))
    assert "and 9995 more damaged lines" in text
    assert len(text.splitlines()) < 20


def test_report_of_a_killed_program_says_that_it_did_not_finish():
    assert "did not finish" in screen(Run(header={"torch": "2.13.0"}))


def test_rich_markup_in_text_of_the_program_is_printed_literally():
    """The rich library would read `[bold]` in a message as markup."""
    here = Location("[bold]a.py", 1, "f[red]")
    text = screen(Run((GraphBreak(here, (here,), "[link=http://x]why[/link]"),)))
    assert "[bold]a.py:1  f[red]" in text
    assert "[link=http://x]why[/link]" in text


def test_long_command_in_the_title_is_separate_from_the_version_of_torch():
    run = Run((), {"command": ["dynx", "run", "a" * 200], "torch": "2.13.0"}, {"seconds": 1.0})
    assert "…  torch 2.13.0" in screen(run)
