"""Update advice after trials (`dynx run --try`): a fix that helped replaces it, a fix that did not is removed from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dynx.records.finding import Finding
from dynx.records.fix import Fix
from dynx.records.trial import Trial

IN_VAIN = "; tried in vain: "  # between advice and the fixes that did not help


def with_trials(finding: Finding, trials: Iterable[Trial]) -> Finding:
    """Return a finding with its trials, and advice that takes them into account."""
    own = tuple(trial for trial in trials if _key(trial) == _key(finding))
    if not own:
        return finding
    helps = next((trial for trial in own if trial.is_kept), None)
    advice = f"{helps.fix.code} (tried: {helps.result})" if helps is not None else _without(finding.advice, own)
    return replace(finding, trials=own, advice=advice)


def _key(about: Finding | Trial) -> tuple[str, str, str]:
    return about.rule, about.title, about.location.own.function


def _without(advice: str, trials: tuple[Trial, ...]) -> str:
    """Return advice without the alternatives that did not help, and with the fixes tried."""
    parts = re.split(r"(; or |, or |; )", advice)
    kept = [index for index in range(0, len(parts), 2) if not any(names(parts[index], trial.fix) for trial in trials)]
    rest = "".join(parts[index] if number == 0 else parts[index - 1] + parts[index] for number, index in enumerate(kept))
    tried = ", ".join(dict.fromkeys(f"{trial.fix.code} ({trial.outcome})" for trial in trials))
    return f"{rest or 'nothing that is known helps'}{IN_VAIN}{tried}"


def names(advice: str, fix: Fix) -> bool:
    """Return whether advice names a fix: a setting, an option, or a call."""
    if setting := re.search(r"config\.(\w+)", fix.code):
        return setting[1] in advice
    return (fix.code.partition("(")[0] if fix.kind == "mark" else fix.code) in advice
