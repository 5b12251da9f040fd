"""Rule DX913: a function, method or `forward` was replaced, and compiled code still has the old one."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.effects import compiled_again, named, stale_findings
from dynx.advice.rule import RunRule
from dynx.records.finding import Alternative, Finding
from dynx.records.run_records import RunRecords
from dynx.records.unguarded import StaleValue


def _find(run: RunRecords) -> Iterator[Finding]:
    yield from stale_findings(run, RULE.id, ("function", "method"), _title, _alternatives)


def _title(stale: StaleValue) -> str:
    if stale.kind == "function":
        return f"compiled code still runs the old {named(stale)}: {stale.before}, now {stale.now}"
    return f"compiled code still calls {stale.before} as {named(stale)}: it is {stale.now} now"


def _alternatives(stale: StaleValue) -> Iterator[Alternative]:
    yield compiled_again(stale, "after replacing it")


RULE = RunRule(id="DX913", title="a function was replaced, and compiled code has the old one", find=_find)
