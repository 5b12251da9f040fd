"""Update the advice of findings after trials: runs of the program with one fix each (`dynx run --try`).

A fix that helped replaces the advice; a fix that did not help is removed from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dynx.advice.proof.alternatives import without
from dynx.records.finding import Alternative, Finding
from dynx.records.trial import Trial

_IN_VAIN = "; tried in vain: "  # between advice and the fixes that did not help


def with_trials(finding: Finding, trials: Iterable[Trial]) -> Finding:
    """Return a finding with the `trials` (runs with one fix each) of its fixes, and with advice updated by their results."""
    own = tuple(trial for trial in trials if _key(trial) == _key(finding))
    if not own:
        return finding
    helps = next((trial for trial in own if trial.is_kept), None)
    tried = replace(finding, trials=own)
    if helps is not None:
        return tried.advised([Alternative(helps.fix.code, helps.fix.name, f"tried: {helps.result}")])
    rest = without(finding.alternatives or [Alternative(finding.advice)], [trial.fix for trial in own])
    single = [trial for trial in own if trial.fix.after is None] or own
    in_vain = ", ".join(dict.fromkeys(f"{trial.fix.code} ({trial.outcome})" for trial in single))
    left = tried.advised(rest or [Alternative("nothing that is known helps")])
    return replace(left, advice=f"{left.advice}{_IN_VAIN}{in_vain}")


def _key(about: Finding | Trial) -> tuple[str, str, str]:
    return about.rule, about.title, about.location.own.function
