"""Rule DX912: hooks that were registered on a module after it was compiled, and that compiled code does not call."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.effects import compiled_again, named, stale_findings
from dynx.advice.facts.fixes import setting
from dynx.advice.rule import RunRule
from dynx.records.finding import Alternative, Finding
from dynx.records.run_records import RunRecords
from dynx.records.unguarded import StaleValue


def _find(run: RunRecords) -> Iterator[Finding]:
    yield from stale_findings(run, RULE.id, ("hooks",), _title, _alternatives)


def _title(stale: StaleValue) -> str:
    owner = named(stale).removeprefix("hooks of ")
    return f"compiled code does not call a hook of {owner}, registered after it was compiled: {stale.now}"


def _alternatives(stale: StaleValue) -> Iterator[Alternative]:
    yield setting("skip_nnmodule_hook_guards = False", "register hooks before the first call; or set {} before it")
    yield compiled_again(stale, "after registering it")


RULE = RunRule(id="DX912", title="a hook was registered after the module was compiled", find=_find)
