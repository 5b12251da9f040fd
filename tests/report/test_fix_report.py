"""What `dynx fix` prints: each trial with the line that it changes, whole at every width of the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dynx.records import Location
from dynx.records.fix import Fix
from dynx.records.fix_report import FixReport
from dynx.records.trial import Events, Outcome, Trial

BEFORE = Events(recompiles=4, graph_breaks=0, gave_up=1, eager=0, failed=0, seconds=0.5)
AFTER = Events(recompiles=3, graph_breaks=0, gave_up=1, eager=0, failed=0, seconds=0.4)
WORSE = Events(recompiles=5, graph_breaks=0, gave_up=1, eager=0, failed=0, seconds=0.6)
LINE = Location("train.py", 12, "step")
SETTING = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"


def trial(fix: Fix, outcome: Outcome = "kept", after: Events | None = AFTER, *at: Location) -> Trial:
    reason = "" if outcome == "kept" else BEFORE.to(after or BEFORE)
    return Trial("DX102", "x.size(0) 3, then 4", LINE, fix, outcome, BEFORE, after, True, reason, at)


REPORT = FixReport(
    "train.py",
    BEFORE,
    AFTER,
    (
        trial(Fix("statement", SETTING), "kept", AFTER, Location("train.py", 3, "")),
        trial(Fix("option", "dynamic=True"), "kept", AFTER, Location("train.py", 57, ""), Location("train.py", 61, "")),
        trial(Fix("option", "dynamic=True"), "no effect", BEFORE, Location("model.py", 7, "")),
        trial(Fix("mark", "mark_dynamic(x, 0)", LINE, Location("train.py", 80, "main")), "no effect", WORSE),
        trial(Fix("option", "dynamic=True"), "takes too long", None),
        trial(Fix("option", "mode=None"), "not needed", AFTER),
    ),
    runs=6,
)


def shown(width: int, report: FixReport = REPORT) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(report)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_each_trial_names_the_line_that_it_changes():
    table = "\n".join(shown(160))
    assert "dynamic=True at line 57 and line 61 " in table  # of the file of the finding
    assert "dynamic=True at model.py:7 " in table
    assert "mark_dynamic(x, 0) at line 80 " in table
    assert f"{SETTING.replace('unspec', '')} at" not in table


def test_the_title_says_what_is_left_of_the_largest_costs():
    assert shown(160)[0] == "2 fixes: recompiles 4 → 3 (unchanged: 1 gave up); compiling 500 ms → 400 ms"


def test_a_fix_that_later_ones_made_unnecessary_shows_its_counts_too():
    """The rows after it begin with them."""
    assert any("mode=None" in line and "recompiles 4 → 3; not needed: " in line for line in shown(160))


def test_a_trial_without_effect_shows_the_other_costs_that_changed():
    lines = shown(160)
    assert any("model.py:7" in line and "no effect   " in line for line in lines)
    assert any("line 80" in line and "no effect: recompiles 4 → 5" in line for line in lines)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_whether_a_fix_is_kept_and_its_name_are_whole_at_every_width(width):
    lines = shown(width)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("  yes ") for line in lines) == 2
    assert sum(line.startswith("  no ") for line in lines) == 4
    assert sum(line.endswith("500 ms → 400 ms") for line in lines) == 4
    words = {word for line in lines for word in line.split()}
    parts = {
        80: "torch._dynamo. config.allow_ unspec_int_on_ nn_module",
        100: "torch._dynamo.config. allow_unspec_int_on_nn_ module",
        140: "torch._dynamo.config. allow_unspec_int_on_nn_module",
    }
    assert set(parts[width].split()) <= words


def test_a_name_is_whole_beside_long_texts():
    setting = Fix("statement", "torch._dynamo.config.capture_dynamic_output_shape_ops = True")
    long = replace(trial(setting, "fails", AFTER), reason="TypeError: where() received an invalid combination of arguments" * 3)
    report = replace(REPORT, trials=(long,))
    lines = shown(140, report)
    assert max(map(len, lines)) <= 140
    assert sum(line.endswith("500 ms → 400 ms") for line in lines) == 1
    words = {word for line in lines for word in line.split()}
    assert {"torch._dynamo.config.", "capture_dynamic_output_shape_ops"} <= words
