"""Reports of runs with many records take time in proportion to their number."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

import dynx
from dynx import Run
from dynx.records import Backward, Compile, GraphBreak, Location, Reason, Recompile
from dynx.report import terminal

PACKAGE = str(Path(dynx.__file__).parent)


def run_with(functions):
    """Return a run in which each function was compiled four times; all compilations begin at once, as in a damaged file."""
    events = []
    for number in range(functions):
        line = Location(f"model{number % 7}.py", number % 50, f"f{number}")
        reasons = (Reason("value", "n", "0.0", "1.5", line, text="n == 0.0", against=f"{number}/0"),)
        events += [Recompile(0, f"{number}/{version}", line, reasons, 0.1) for version in range(1, 4)]
        events += [
            Compile(0, f"{number}/{version}", line, "compiled", 0.1, phases={"trace": 0.1}, began=1.0) for version in range(4)
        ]
        events.append(GraphBreak(line, (line,), f"reason {number}", compiles=((0, f"{number}/0"),)))
        events.append(Backward(0, f"{number}/0", 0.1, began=1.0))
    return Run(tuple(events), {"torch": "2.13.0"}, {"seconds": 1.0})


def show(run):
    Console(file=io.StringIO(), width=100).print(terminal(run, full=False))


def show_full(run):
    Console(file=io.StringIO(), width=100).print(terminal(run, full=True))


def trace(run):
    run.to_perfetto()


def page(run):
    run._repr_html_()


def steps(function, *args):
    """Return how many lines of dynx are executed."""
    count = 0

    def in_frame(frame, event, _):
        nonlocal count
        count += event == "line"
        return in_frame

    before = sys.gettrace()
    sys.settrace(lambda frame, event, _: in_frame if frame.f_code.co_filename.startswith(PACKAGE) else None)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("report", [show, show_full, trace, page], ids=lambda report: report.__name__)
def test_steps_grow_with_the_number_of_records(report):
    few, many = (steps(report, run_with(functions)) for functions in (25, 100))
    assert many < 4.6 * few


def test_steps_do_not_grow_with_the_length_of_a_file_name():
    lines = (Location("x" * length + ".py", 3, "f") for length in (500, 10_000))
    short, long = (Run((Compile(0, "0/0", line, "compiled", 1.0), GraphBreak(line, (line,), "reason")), {}) for line in lines)
    assert steps(show_full, long) < 2 * steps(show_full, short)
