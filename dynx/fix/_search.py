"""Search for fixes that help: try one after the other, each in a separate run of the program (a trial).

A fix that helps is kept, and later trials run with it. A plan (`_plan.py`) lists all changes of the program in one run. Each
trial is compared with the run in which only the fixes kept so far were applied.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dynx.fix._judge import Comparison, FindingKey, judge, key_of, new_findings, traced_functions
from dynx.fix._output import Tolerance, varying_numbers
from dynx.fix._plan import Plan
from dynx.fix._program import Program, Result, run
from dynx.fix._propose import Propose
from dynx.records import Finding
from dynx.records.fix import Fix
from dynx.records.trial import Trial
from dynx.records.what_if import WhatIf

_MARGIN = 4  # a trial is stopped after this multiple of the time of the run without a fix
_LEAST = 60.0  # seconds allowed in any case
_SHARE = 1.0  # of the compile time of the first run, for what-ifs: less than one more run


@dataclass(frozen=True, slots=True)
class Limits:
    """The time budget of a search for fixes, in seconds, and how the results of two runs are compared."""

    budget: float = 600.0  # seconds of all runs
    tolerance: Tolerance = field(default_factory=Tolerance)
    values: tuple[str, ...] = ()  # global variables that are compared, instead of the output


class Attempt(NamedTuple):
    """Key of a fix that was tried. A fix that adds an argument to torch.compile has a separate key for each function."""

    fix: Fix
    function: str


def attempt_of(finding: Finding, fix: Fix) -> Attempt:
    """Return the key under which the search remembers that it tried a fix."""
    return Attempt(fix, finding.location.own.function if fix.kind == "option" else "")


class Step(NamedTuple):
    """A fix that was kept: its trial, and the plans (lists of all changes of the program) before and after it was added."""

    trial: Trial
    before: Plan
    after: Plan


class Lead(NamedTuple):
    """A fix that removes its finding but leads to a new one (say a further graph break). `result` is the run with this fix."""

    finding: Finding
    fix: Fix
    result: Result


@dataclass
class Search:
    """The state of a search for fixes: the run with all fixes kept so far (`base`), and all trials."""

    program: Program
    limits: Limits
    propose: Propose
    base: Result
    first: Result = field(init=False)  # without any fix
    trials: list[Trial] = field(default_factory=list)
    kept: set[Attempt] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)  # the fixes that are kept, in order
    runs: int = 1
    started: float = field(default_factory=time.monotonic)
    comparison: Comparison = field(init=False)
    tried: dict[Attempt, set[FindingKey]] = field(default_factory=dict)
    has_repeated: bool = False  # a base was run again, to learn what varies in its output
    leads: list[Lead] = field(default_factory=list)
    not_kept: list[Plan] = field(default_factory=list)  # two findings may have fixes that are the same change
    is_out_of_budget: bool = False
    what_ifs: dict[tuple[str, Fix], WhatIf] = field(init=False)  # of the first run, by the rule of the finding
    together: set[tuple[str, Fix]] = field(init=False)  # fixes that helped in a what-if together with other fixes

    def __post_init__(self) -> None:
        self.first = self.base
        what_ifs = [(finding.rule, each) for finding in self.base.run.findings for each in finding.what_ifs]
        self.what_ifs = {(rule, each.fix): each for rule, each in what_ifs if not each.together}
        self.together = {(rule, each.fix) for rule, each in what_ifs if each.together and each.helps}
        self.comparison = Comparison(self.limits.tolerance)

    @property
    def seconds_left(self) -> float:
        """The seconds that are left of the time budget."""
        return self.limits.budget - (time.monotonic() - self.started)


def first_run(program: Program, limits: Limits) -> Result:
    """Run the program without any fix, for at most the whole time budget, and return the result.

    In this run, fixes are tried by what-ifs too (see `dynx._what_if`), so that fewer of them need a run of their own.
    """
    return run(program, Plan(values=limits.values), timeout=limits.budget, what_if=_SHARE)


def search(state: Search) -> Iterator[Trial]:
    """Try the fixes of all findings, the most expensive finding first; yield each trial when it has ended.

    If no single fix helps, a fix that leads to a new finding is tried together with the fixes of that finding.
    """
    while True:
        if (candidate := _next(state)) is not None:
            trials = _alternatives(state, *candidate)
        elif state.leads:
            trials = _behind(state, state.leads.pop(0))
        else:
            return
        for trial in trials:
            state.trials.append(trial)
            yield trial


def _next(state: Search) -> tuple[Finding, Fix] | None:
    """Return the next finding and a fix to try for it; None if there is none.

    A fix is tried again for a finding that appeared after its last trial. A fix that led to another finding is also tried
    again after a further fix was kept.
    """
    if state.is_out_of_budget:
        state.leads.clear()
        return None
    for finding in state.base.run.findings:
        for fix in _worth_trying(state, finding):
            attempt = attempt_of(finding, fix)
            if attempt not in state.kept and key_of(finding) not in state.tried.get(attempt, ()):
                return finding, fix
    return None


def _worth_trying(state: Search, finding: Finding) -> list[Fix]:
    """Return the fixes of a finding, those that helped in a what-if first, without those that did not help in any."""
    tried = {fix: state.what_ifs.get((finding.rule, fix)) for fix in finding.fixes}
    helped = sorted((each for each in tried.values() if each is not None and each.helps), key=lambda each: each.compiles)
    together = [fix for fix in tried if (finding.rule, fix) in state.together]
    refuted = [each.fix for each in tried.values() if each is not None and each.outcome == "no effect"]
    unknown = [
        fix
        for fix, what_if in tried.items()
        if (what_if is None or not what_if.is_proven) and not any(map(fix.is_weaker_than, refuted))
    ]
    return list(dict.fromkeys([*(each.fix for each in helped), *together, *unknown]))


def _alternatives(state: Search, finding: Finding, fix: Fix) -> Iterator[Trial]:
    """Try each way to apply a fix, until one is kept; yield the trials.

    Yield nothing if the fix calls `mark_dynamic` inside traced code, where it would fail.
    """
    state.tried[attempt_of(finding, fix)] = set(map(key_of, state.base.run.findings))
    if fix.kind == "mark" and _is_called_in_traced_code(state, fix):
        return
    for plan in state.propose(state.base.plan, finding, fix):
        if plan in state.not_kept:
            continue
        tried = _try(state, finding, fix, plan)
        if tried is None:
            return
        trial, result = tried
        if trial.outcome == "leads to another":
            state.leads.append(Lead(finding, fix, result))
        yield trial
        if trial.is_kept or (fix.kind == "mark" and trial.outcome != "fails"):
            return  # the second way to write a mark is for calls that lack an argument


def _is_called_in_traced_code(state: Search, fix: Fix) -> bool:
    caller = None if fix.called_from is None else fix.called_from.own
    return caller is not None and (caller.file, caller.function) in traced_functions(state.base.run)


def _behind(state: Search, lead: Lead) -> Iterator[Trial]:
    """Try `lead`, a fix that led to new findings, in pairs with the fixes for these, until a pair is kept; yield the trials."""
    for behind in new_findings(state.base, lead.result):
        for second in behind.fixes:
            both = replace(second, code=f"{lead.fix.code}; {second.code}", after=lead.fix)
            for plan in state.propose(lead.result.plan, behind, second) if second != lead.fix else ():
                tried = _try(state, lead.finding, both, plan)
                if tried is None:
                    return
                yield tried[0]
                if tried[0].is_kept:
                    state.kept |= {attempt_of(lead.finding, lead.fix), attempt_of(behind, second)}
                    return


def _try(state: Search, finding: Finding, fix: Fix, plan: Plan) -> tuple[Trial, Result] | None:
    """Run the program with the changes in `plan`; return the trial and the result, or None if the time budget is spent.

    If the fix is kept, the result becomes `state.base`, with which the next trials are compared.
    """
    if state.seconds_left < state.base.seconds:
        state.is_out_of_budget = True
        return None
    result = run_again(state, plan)
    if result.was_stopped and state.seconds_left <= 0:
        state.is_out_of_budget = True
        return None
    trial = judge(finding, fix, state.base, result, state.comparison)
    if trial.outcome == "other output" and _learn_what_varies(state):
        trial = judge(finding, fix, state.base, result, state.comparison)
    trial = replace(trial, written_at=plan.changed_since(state.base.plan))
    if trial.is_kept:
        state.steps.append(Step(trial, state.base.plan, plan))
        state.base = result
        state.kept.add(attempt_of(finding, fix))
        state.not_kept.clear()
        for lead in state.leads:  # they were tried without this fix: with it, they may help
            state.tried.pop(attempt_of(lead.finding, lead.fix), None)
        state.leads.clear()
    else:
        state.not_kept.append(plan)
    return trial, result


def run_again(state: Search, plan: Plan) -> Result:
    """Run the program with the changes in `plan`, and return the result.

    The program is stopped after 60 s or four times the first run, whichever is longer, and when the time budget is spent.
    """
    state.runs += 1
    timeout = min(max(_LEAST, _MARGIN * state.first.seconds), max(state.seconds_left, 1.0))
    return run(state.program, plan, timeout=timeout)


def _learn_what_varies(state: Search) -> bool:
    """Repeat the run of `state.base`, at most once per search; return whether the program prints something else this time."""
    if state.has_repeated or state.limits.values or state.seconds_left < state.base.seconds:
        return False
    state.has_repeated = True
    again = run_again(state, state.base.plan)
    varying = varying_numbers(state.base.output, again.output, state.limits.tolerance)
    state.comparison = replace(
        state.comparison, varying=varying or frozenset(), is_possible=varying is not None and again.exit_code is not None
    )
    return bool(varying) or varying is None
