"""The report of a search for fixes: the trials, and the fixes that are kept, as a diff."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from dynx._rewrites.source_file import read
from dynx.advice.proof.tried import with_trials
from dynx.fix._judge import events_of
from dynx.fix._search import Search
from dynx.records.fix_report import FixReport

_MORE = 1.1  # ratio of compile times above which the increase is reported


def report_of(state: Search, notes: tuple[str, ...] = (), began: float = 0.0) -> FixReport:
    """Return the report of a search for fixes that has ended, or was interrupted."""
    more = list(notes)
    if state.is_out_of_budget:
        budget = f"the budget of {state.limits.budget:.0f} s is spent"
        more.append(f"{budget}: not all fixes were tried, and some that are kept may not be needed")
    if not state.comparison.is_possible:
        more.append("the program prints another text in each run: name a global variable to compare with --result")
    elif state.comparison.varying:
        count = len(state.comparison.varying)
        more.append(f"{count} {'number' if count == 1 else 'numbers'} of the output differ from run to run: not compared")
    kept = {trial.fix for trial in state.trials if trial.is_kept}  # the remaining findings are of the program with these
    in_vain = [trial for trial in state.trials if trial.fix not in kept and trial.outcome != "not needed"]
    before, after = events_of(state.first.run), events_of(state.base.run)
    if state.steps and after.seconds > _MORE * before.seconds:
        more.append("compiling takes longer: worth it where more sizes or values follow than in this run")
    if state.base.plan.fixes and state.program.option == "-c":
        more.append("the program has no file: what is kept is not written anywhere")
    return FixReport(
        str(state.program),
        before,
        after,
        tuple(state.trials),
        state.first.run.findings,
        tuple(with_trials(finding, in_vain) for finding in state.base.run.findings),
        unified_diff(state.base.plan.sources),
        state.runs,
        time.monotonic() - state.started,
        tuple(more),
        dict(state.base.plan.sources),
        began,
    )


def unified_diff(sources: Mapping[str, str]) -> str:
    """Return the changes of files as a unified diff, which `git apply` and `patch` accept."""
    parts = []
    for file, text in sources.items():
        name = shown(file)
        ends = "\t" if " " in name else ""  # marks the end of a name with spaces for `patch`
        lines = difflib.unified_diff(_lines(read(file)), _lines(text), f"a/{name}{ends}", f"b/{name}{ends}")
        parts.append("".join(lines))
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """Return the lines of a text for a diff, split at newlines only: `str.splitlines` also splits at form feeds."""
    lines = [f"{line}\n" for line in text.split("\n")]
    if lines[-1] == "\n":
        return lines[:-1]
    lines[-1] += "\\ No newline at end of file\n"
    return lines


def shown(file: str) -> str:
    """Return the path of a file for a diff: symbolic links resolved, and relative to the working directory if it is inside."""
    path, folder = Path(os.path.realpath(file)), Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path).lstrip("/")
