"""Update the advice of findings after trials: runs of the program with one fix each (`dynx run --try`).

A fix that helped replaces the advice; a fix that did not help is removed from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dynx.advice.proof.alternatives import without
from dynx.records.finding import Finding
from dynx.records.trial import Trial

IN_VAIN = "; tried in vain: "  # between advice and the fixes that did not help


def with_trials(finding: Finding, trials: Iterable[Trial]) -> Finding:
    """Return a finding with the `trials` (runs with one fix each) of its fixes, and with advice updated by their results."""
    own = tuple(trial for trial in trials if _key(trial) == _key(finding))
    if not own:
        return finding
    helps = next((trial for trial in own if trial.is_kept), None)
    advice = f"{helps.fix.code} (tried: {helps.result})" if helps is not None else _without(finding.advice, own)
    return replace(finding, trials=own, advice=advice)


def _key(about: Finding | Trial) -> tuple[str, str, str]:
    return about.rule, about.title, about.location.own.function


def _without(advice: str, trials: tuple[Trial, ...]) -> str:
    """Return advice without the alternatives that did not help, followed by a list of the fixes that were tried."""
    rest = without(advice, [trial.fix for trial in trials])
    tried = ", ".join(dict.fromkeys(f"{trial.fix.code} ({trial.outcome})" for trial in trials))
    return f"{rest or 'nothing that is known helps'}{IN_VAIN}{tried}"
