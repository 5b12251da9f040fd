"""The report of a search: its trials, and what is kept as a diff."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping
from pathlib import Path

from dynx.fix._judge import events_of
from dynx.fix._search import Search
from dynx.records.fix_report import FixReport


def report_of(state: Search, notes: tuple[str, ...] = ()) -> FixReport:
    """Return the report of a search that has ended, or was stopped."""
    more = list(notes)
    if state.is_out_of_budget:
        more.append(f"the budget of {state.limits.budget:.0f} s is spent: not all fixes were tried")
    if not state.comparison.is_possible:
        more.append("the program prints another text in each run: name a global variable to compare with --result")
    elif state.comparison.varying:
        more.append(f"{len(state.comparison.varying)} numbers of the output vary from run to run, and were not compared")
    if state.base.plan.fixes:
        more.append("the program has no file: what is kept is not written anywhere")
    return FixReport(
        str(state.program),
        events_of(state.first.run),
        events_of(state.base.run),
        tuple(state.trials),
        state.first.run.findings,
        state.base.run.findings,
        unified_diff(state.base.plan.sources),
        state.runs,
        time.monotonic() - state.started,
        tuple(more),
    )


def unified_diff(sources: Mapping[str, str]) -> str:
    """Return the changes of files as a unified diff, which `git apply` and `patch` accept."""
    parts = []
    for file, text in sources.items():
        name = shown(file)
        with open(file, encoding="utf-8", newline="") as opened:
            old = opened.read()
        lines = difflib.unified_diff(_lines(old), _lines(text), f"a/{name}", f"b/{name}")
        parts.append("".join(lines))
    return "".join(parts)


def _lines(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


def shown(file: str) -> str:
    """Return the path of a file as a diff shows it: relative to the working directory if it is inside."""
    path, folder = Path(file), Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else file.lstrip("/")
