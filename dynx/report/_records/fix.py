"""Blocks of what `dynx fix` prints."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.fix_report import FixReport
from dynx.records.trial import Events, Trial
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_fixes(report: FixReport) -> Iterator[Block]:
    """Yield what was tried, with the cost before and after each, and what is left."""
    kept = sum(trial.is_kept for trial in report.trials)
    runs = f"{words.plural(report.runs, 'run')} of {report.command} in {words.seconds(report.seconds)}"
    columns = ("finding", "where", "tried", "before → after", "#compiling", "kept")
    rows = [_row(trial) for trial in report.trials]
    title = f"{words.plural(kept, 'fix', 'fixes')}: {report.before.to(report.after)}"
    if kept:
        title += f"; compiling {_seconds(report.before, report.after)}"
    yield Block(title, "", columns, rows, (runs, *report.notes), is_whole=True)
    if report.remaining:
        rows = [(each.rule, words.place(each.location), each.title, each.advice) for each in report.remaining]
        notes = ("its lines are those of the program with the diff applied",) if report.diff else ()
        yield Block("left", words.plural(len(rows), "finding"), ("", "where", "what happened", "do this"), rows, notes)


def _row(trial: Trial) -> tuple[str, ...]:
    before, after = trial.before, trial.after
    seconds = _seconds(before, after) if after is not None else ""
    if trial.is_kept and after is not None:
        result = before.to(after)
    else:
        result = f"{trial.outcome}: {trial.reason}" if trial.reason and trial.outcome != "no effect" else trial.outcome
    return trial.rule, words.place(trial.location), trial.fix.code, result, seconds, "yes" if trial.is_kept else "no"


def _seconds(before: Events, after: Events) -> str:
    return f"{words.seconds(before.seconds)} → {words.seconds(after.seconds)}"
