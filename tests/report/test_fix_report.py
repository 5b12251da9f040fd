"""What `dynx fix` prints: each trial with the line that it changes, whole at every width of the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dynx.records import Location
from dynx.records.fix import Fix
from dynx.records.fix_report import FixReport
from dynx.records.trial import Events, Outcome, Trial

BEFORE = Events(recompiles=4, graph_breaks=0, gave_up=0, eager=0, failed=0, seconds=0.5)
AFTER = Events(recompiles=3, graph_breaks=0, gave_up=0, eager=0, failed=0, seconds=0.4)
WORSE = Events(recompiles=5, graph_breaks=0, gave_up=0, eager=0, failed=0, seconds=0.6)
LINE = Location("train.py", 12, "step")
SETTING = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"


def trial(fix: Fix, outcome: Outcome = "kept", after: Events | None = AFTER, at: Location | None = None) -> Trial:
    reason = "" if outcome == "kept" else BEFORE.to(after or BEFORE)
    return Trial("DX102", "x.size(0) 3, then 4", LINE, fix, outcome, BEFORE, after, True, reason, at)


REPORT = FixReport(
    "train.py",
    BEFORE,
    AFTER,
    (
        trial(Fix("statement", SETTING), at=Location("train.py", 3, "")),
        trial(Fix("option", "dynamic=True"), at=Location("train.py", 57, "")),
        trial(Fix("option", "dynamic=True"), "no effect", BEFORE, Location("model.py", 7, "")),
        trial(Fix("mark", "mark_dynamic(x, 0)", LINE, Location("train.py", 80, "main")), "no effect", WORSE),
        trial(Fix("option", "dynamic=True"), "takes too long", None),
    ),
    runs=6,
)


def shown(width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(REPORT)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_each_trial_names_the_line_that_it_changes():
    table = "\n".join(shown(160))
    assert "dynamic=True at line 57 " in table  # of the file of the finding
    assert "dynamic=True at model.py:7 " in table
    assert "mark_dynamic(x, 0) at line 80 " in table
    assert f"{SETTING.replace('unspec', '')} at" not in table


def test_a_trial_without_effect_shows_the_other_costs_that_changed():
    lines = shown(160)
    assert any("model.py:7" in line and "no effect   " in line for line in lines)
    assert any("line 80" in line and "no effect: recompiles 4 → 5" in line for line in lines)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_whether_a_fix_is_kept_and_its_name_are_whole_at_every_width(width):
    lines = shown(width)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("  yes ") for line in lines) == 2
    assert sum(line.startswith("  no ") for line in lines) == 3
    words = {word for line in lines for word in line.split()}
    parts = (
        "config.allow_ unspec_int_on_ nn_module"
        if width == 80
        else "unspec_int_on_nn_module"
        if width == 160
        else "int_on_nn_module"
    )
    assert set(parts.split()) <= words
