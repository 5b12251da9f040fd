"""Render the report of `dynx doctor` for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dynx.report._grid import Column, Grid
from dynx.report._trimmed import Trimmed
from dynx.report._words import plural

_STYLES = {"missing": "red", "changed": "yellow", "absent": "dim", "ok": "green"}  # in the order of the table
_LISTED = 4  # features that are named in a line; the others are only counted
_SUPPORTED = "torch 2.11 to 2.15"


def screen(report: Any, *, full: bool) -> RenderableType:
    """Render a `DoctorReport` in three lines: whether torch has what dynx needs, what does not work, and what to do.

    `full` adds the private names of torch that dynx needs, and the canaries: small programs that test one behaviour of torch.
    """
    verdict = Text.assemble((f"torch {report.torch} · Python {report.python} · ", ""), _verdict(report), style="bold")
    lines = [verdict, Text("; ".join(_effects(report))), Text(f"→ {_next_step(report)}", style="green")]
    return Trimmed(Padding(Group(*lines, *(_tables(report) if full else ())), (0, 1)))


def _verdict(report: Any) -> tuple[str, str]:
    missing = [name for name in report.capabilities if name.state == "missing" and not name.optional]
    changed = [name for name in report.capabilities if name.state == "changed"]
    failed = sum(canary.failure is not None for canary in report.canaries)
    problems = [
        *([f"lacks {_named(missing)}"] if missing else []),
        *([f"has another signature for {_named(changed)}"] if changed else []),
        *([f"{plural(failed, 'canary', 'canaries')} failed"] if failed else []),
    ]
    if not problems:
        return "has everything that dynx needs", "green"
    return ", ".join(problems), "yellow" if report.healthy else "red"


def _named(names: Sequence[Any]) -> str:
    if len(names) > 1:
        return f"{len(names)} names that dynx uses"
    return str(names[0].path.partition(":")[2])


def _effects(report: Any) -> Iterator[str]:
    """Yield what does not work with this torch: features that are or may be broken, and canaries (small tests) that failed."""
    failed = [f"{canary.name} ({canary.failure})" for canary in report.canaries if canary.failure]
    if report.broken_features:
        yield f"does not work: {_listed(report.broken_features)}"
    if report.doubtful_features:
        yield f"may not work: {_listed(report.doubtful_features)}"
    if failed:
        yield f"torch behaves differently: {_listed(failed)}"
    if not (report.broken_features or report.doubtful_features or failed):
        if report.optional_features:
            yield f"unavailable: {_listed(report.optional_features)}"
        else:
            yield "nothing is missing or changed"


def _next_step(report: Any) -> str:
    if report.broken_features:
        return f"use {_SUPPORTED}, or do without; dynx doctor --full lists the names"
    if any(canary.failure for canary in report.canaries):
        return f"use {_SUPPORTED}: reports with this torch may be wrong"
    if report.canaries:
        return "dynx run train.py"
    if report.doubtful_features:
        return "dynx doctor --canaries checks with small programs whether it works"
    return "dynx doctor --canaries also checks it with small programs"


def _listed(features: Sequence[str]) -> str:
    more = len(features) - _LISTED
    return "; ".join(features[:_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _tables(report: Any) -> Iterator[RenderableType]:
    states = [("absent" if one.state == "missing" and one.optional else str(one.state), one) for one in report.capabilities]
    yield _table(
        (Text(state, style=_STYLES[state]), Text(capability.purpose), Text(capability.path, style="dim"))
        for state, capability in sorted(states, key=lambda pair: list(_STYLES).index(pair[0]))
    )
    if report.canaries:
        yield _table(
            (
                Text("failed", "red") if canary.failure else Text("ok", "green"),
                Text(canary.name),
                Text(canary.failure or "", "red"),
            )
            for canary in report.canaries
        )


def _table(rows: Iterable[tuple[Text, Text, Text]]) -> RenderableType:
    return Group(Text(""), Grid((Column(kind="whole"), Column(), Column()), list(rows)))
