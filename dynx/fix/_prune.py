"""Remove fixes that later fixes made unnecessary, such as `mark_dynamic` after `dynamic=True` was added."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher

from dynx._rewrites.source_file import read
from dynx.fix._judge import events_of, output_difference
from dynx.fix._plan import Plan
from dynx.fix._search import Search, Step, run_again
from dynx.records.trial import Trial


def prune(state: Search) -> Iterator[Trial]:
    """Run the program without each kept fix, one at a time; remove the fixes that were not needed, and yield their trials.

    The last fix is not tested: no later fix can replace it. The outcome of the yielded trials is "not needed".
    """
    for step in state.steps[-2::-1]:
        plan = without(state.base.plan, step)
        if plan is None:
            continue
        if state.seconds_left < state.base.seconds:
            state.is_out_of_budget = True
            return
        result = run_again(state, plan)
        new, old = events_of(result.run).counts, events_of(state.base.run).counts
        if result.was_stopped or any(map(operator.gt, new, old)):
            continue
        if result.exit_code != state.base.exit_code or output_difference(state.base, result, state.comparison) is not None:
            continue
        state.base = result
        trial = replace(step.trial, outcome="not needed", reason="the later fixes remove this cost too")
        state.trials[state.trials.index(step.trial)] = trial
        yield trial


def without(plan: Plan, step: Step) -> Plan | None:
    """Return a plan without a kept fix (`step`); None if later fixes changed the same lines."""
    fixes = tuple(fix for fix in plan.fixes if fix not in step.after.fixes or fix in step.before.fixes)
    sources = dict(plan.sources)
    for file, after in step.after.sources.items():
        before = step.before.sources[file] if file in step.before.sources else read(file)
        if before != after:
            text = undone(sources[file], before, after)
            if text is None:
                return None
            sources[file] = text
    return replace(plan, fixes=fixes, sources=sources)


def undone(text: str, before: str, after: str) -> str | None:
    """Return a text with the change from `before` to `after` undone; None unless `text` has each changed block exactly once."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for kind, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        block = "".join(new[start:end])
        if not block or text.count(block) != 1:
            return None
        text = text.replace(block, "".join(old[first:last]))
    return text
