"""Advice after `dynx run --try`: what helped replaces it, what did not is no longer advised."""

from __future__ import annotations

from dataclasses import replace

from dynx import Run
from dynx.advice.facts.fixes import setting
from dynx.advice.proof.tried import with_trials
from dynx.records import Alternative, Events, Finding, Fix, Location, Trial

BEFORE = Events(4, 1, 0, 0, 0, 2.0)
AFTER = replace(BEFORE, recompiles=1)
FINDING = Finding(
    "DX102",
    "x.size(0) 3, then 4",
    Location("train.py", 7, "step"),
    1.0,
    (),
    "",
).advised(
    [
        Alternative("mark_dynamic(x, 0) before the call", "mark_dynamic"),
        Alternative("pad to one size"),
        Alternative("compile with dynamic=True", "dynamic=True"),
    ]
)


def trial_of(code: str, outcome: str, *, kind: str = "option") -> Trial:
    fix = Fix(kind, code)
    return Trial(FINDING.rule, FINDING.title, FINDING.location, fix, outcome, BEFORE, AFTER, outcome == "kept" or None)


def test_a_fix_that_helped_is_the_advice():
    failed, kept = trial_of("mark_dynamic(x, 0)", "fails", kind="mark"), trial_of("dynamic=True", "kept")
    found = with_trials(FINDING, [failed, kept])
    assert found.advice == "dynamic=True (tried: recompiles 4 → 1, same output)"
    assert found.trials == (failed, kept)


def test_a_fix_that_failed_is_no_longer_advised():
    found = with_trials(FINDING, [trial_of("mark_dynamic(x, 0)", "fails", kind="mark")])
    assert found.advice == "pad to one size; or compile with dynamic=True; tried in vain: mark_dynamic(x, 0) (fails)"
    both = with_trials(FINDING, [trial_of("mark_dynamic(x, 0)", "fails", kind="mark"), trial_of("dynamic=True", "no effect")])
    assert both.advice == "pad to one size; tried in vain: mark_dynamic(x, 0) (fails), dynamic=True (no effect)"


def test_where_everything_failed_nothing_is_advised():
    finding = FINDING.advised([Alternative("compile with dynamic=True", "dynamic=True")])
    found = with_trials(finding, [trial_of("dynamic=True", "other output")])
    assert found.advice == "nothing that is known helps; tried in vain: dynamic=True (other output)"


def test_a_setting_is_known_by_its_name():
    advised = FINDING.advised([Alternative("keep it a tensor"), setting("capture_scalar_outputs = True")])
    trial = trial_of("torch._dynamo.config.capture_scalar_outputs = True", "no effect", kind="statement")
    assert with_trials(advised, [trial]).advice.startswith("keep it a tensor; tried in vain: ")


def test_trials_of_other_findings_are_left():
    other = replace(trial_of("dynamic=True", "kept"), title="y.size(0) 3, then 4")
    assert with_trials(FINDING, [other]) == FINDING


def test_trials_are_saved_with_the_run(tmp_path):
    run = Run((trial_of("dynamic=True", "kept"),))
    run.save(tmp_path / "run.dynx")
    assert Run.load(tmp_path / "run.dynx").trials == run.trials


def test_what_changed_between_two_runs_in_words():
    assert str(BEFORE) == "4 recompiles, 1 graph break"
    assert BEFORE.to(AFTER) == "recompiles 4 → 1"
    assert BEFORE.to(BEFORE) == "4 recompiles, 1 graph break"
    assert str(Events(0, 0, 0, 0, 0, 0.0)) == "nothing to fix"
