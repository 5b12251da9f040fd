"""The terminal and notebook views of a `timeline`, which has the cost of tracing each line."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dynx.records import Location, TracedGuard
from dynx.records.comptime import LineCost, TracedCompile
from dynx.report import timeline, timeline_html

GUARD = TracedGuard("TENSOR_MATCH", "L['x']", None)
LINES = (
    LineCost(Location("model.py", 12, "f"), "    y = x @ <w>", 9, 0.02, 0.05, ("matmul",), (GUARD,), ("s0 > 2",), 0),
    LineCost(
        Location("/a/site-packages/lib/deep/helper_functions.py", 7, "g", library="lib"), "z", 3, 0.01, 0.01, (), (), (), 1
    ),
)
COMPILES = (TracedCompile("0/0", Location("model.py", 10, "f"), 2, 0.03, 1.5, 0.2),)


def shown(width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(timeline(COMPILES, LINES))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_terminal_view_of_a_timeline():
    assert shown(90) == [
        "30 ms tracing   1.5 s in the backend   200 ms in discarded attempts   1 compile",
        "",
        "  self   total   nodes  guards  where                       line",
        " 20 ms   50 ms       1       2  model.py:12                 y = x @ <w>",
        " 10 ms   10 ms       -       -  deep/helper_functions.py:7  z",
    ]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_terminal_view_of_a_timeline_fits_the_terminal_width(width):
    assert max(map(len, shown(width))) <= width


def test_timeline_page_escapes_text_of_the_program_and_colours_lines_by_cost():
    page = timeline_html(COMPILES, LINES)
    assert "y = x @ &lt;w&gt;" in page
    assert "shape guards: s0 &gt; 2" in page
    assert "rgba(229, 72, 77, 0.60)" in page, "the hottest line"


def test_timeline_views_say_that_nothing_was_traced():
    assert "nothing was traced" in timeline_html((), ())
