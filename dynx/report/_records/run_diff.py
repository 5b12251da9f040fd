"""Show the result of `Run.diff`, which compares two runs, as blocks (title, table, notes)."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.run_diff import CauseChange, RunDiff, RunTotal
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_diff(diff: RunDiff) -> Iterator[Block]:
    """Yield blocks: what got worse, what got better, and the totals of both runs."""
    worse, better = diff.worse, diff.better
    yield _causes("worse", worse)
    yield _causes("better", better)
    same = len(diff.causes) - len(worse) - len(better)
    notes = (f"{words.plural(same, 'other cause')} as often as before",) if same else ()
    rows = [
        (amount.name, _amount(amount, amount.before), _amount(amount, amount.after), _ratio(amount)) for amount in diff.amounts
    ]
    yield Block("totals", "", ("", "#before", "#after", ""), rows, (*notes, *diff.notes))


def _causes(title: str, causes: tuple[CauseChange, ...]) -> Block:
    rows = [
        (
            cause.verdict,
            cause.kind,
            cause.cause,
            words.place(cause.location) if cause.location is not None else "",
            cause.function,
            f"{cause.before} → {cause.after}",
            _seconds(cause),
        )
        for cause in causes
    ]
    columns = ("", "what", "cause", "where", "function", "#times", "#seconds")
    remark = words.plural(len(causes), "cause") if causes else "nothing"
    return Block(title, remark, columns, rows, is_whole=title == "worse")


def _seconds(cause: CauseChange) -> str:
    if not cause.seconds_before and not cause.seconds_after:
        return ""
    return f"{words.seconds(cause.seconds_before)} → {words.seconds(cause.seconds_after)}"


def _amount(amount: RunTotal, value: float) -> str:
    if amount.unit == "seconds":
        return words.seconds(value)
    return words.size(int(value)) if amount.unit == "bytes" else f"{value:.0f}"


def _ratio(amount: RunTotal) -> str:
    """Return the second run's total as a multiple of the first run's, such as `1.30x`; empty if both are equal or one is 0."""
    if amount.before == amount.after or not amount.before or not amount.after:
        return ""
    return f"{amount.after / amount.before:.2f}x"
