"""Show the report of `dynx fix` as blocks (title, table, notes)."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.fix_report import FixReport
from dynx.records.trial import Events, Trial
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_fixes(report: FixReport) -> Iterator[Block]:
    """Yield a block with the fixes that were tried and the costs before and after, and one with the remaining findings."""
    kept = sum(trial.is_kept for trial in report.trials)
    runs = f"{words.plural(report.runs, 'run')} of {report.command} in {words.seconds(report.seconds)}"
    columns = ("kept", "finding", "where", "tried", "before → after", "compiling")
    rows = [_row(trial) for trial in report.trials]
    title = f"{words.plural(kept, 'fix', 'fixes')}: {report.before.to(report.after)}"
    if kept and (unchanged := report.before.unchanged(report.after)):
        title += f" (unchanged: {unchanged})"
    if kept:
        title += f"; compiling {_seconds(report.before, report.after)}"
    notes = ("lines are those of the program with the fixes above them",) if kept else ()
    yield Block(title, "", columns, rows, (*notes, runs, *report.notes), is_whole=True)
    if report.remaining:
        rows = [(each.rule, words.place(each.location), each.title, each.advice) for each in report.remaining]
        notes = ("its lines are those of the program with the diff applied",) if report.diff else ()
        yield Block("left", words.plural(len(rows), "finding"), ("", "where", "what happened", "do this"), rows, notes)


def _row(trial: Trial) -> tuple[str, ...]:
    seconds = _seconds(trial.before, trial.after) if trial.after is not None else ""
    kept = "yes" if trial.is_kept else "no"
    return kept, trial.rule, words.place(trial.location), _tried(trial), _result(trial), seconds


def _tried(trial: Trial) -> str:
    """Return the fix that was tried, as text. If the fix changes a line other than the finding's line, append that line."""
    lines = trial.written_at if trial.fix.kind == "option" else filter(None, (trial.fix.called_from,))
    elsewhere, own = [line for line in lines if words.place(line) != words.place(trial.location)], trial.location.own
    places = [f"line {line.line}" if line.file == own.file else words.place(line) for line in elsewhere]
    return f"{trial.fix.code} at {' and '.join(places)}" if places else trial.fix.code


def _result(trial: Trial) -> str:
    before, after = trial.before, trial.after
    if after is not None and (trial.is_kept or trial.outcome == "not needed"):
        return f"{before.to(after)}{'' if trial.is_kept else f'; {trial.outcome}: {trial.reason}'}"
    changes_nothing = trial.outcome == "no effect" and after is not None and after.counts == before.counts
    return trial.outcome if changes_nothing or not trial.reason else f"{trial.outcome}: {trial.reason}"


def _seconds(before: Events, after: Events) -> str:
    return f"{words.seconds(before.seconds)} → {words.seconds(after.seconds)}"
