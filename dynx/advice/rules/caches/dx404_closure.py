"""Rule DX404: torch ignores a function's dynamic sizes in a PGO profile, because the hash of its closure has changed."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

_ADVICE = "save the profile with dynx run --pgo, or under dynx.pgo.stable_closure_hash(), and use it in the same way"


def _find(run: RunRecords) -> Iterator[Finding]:
    """Yield a finding for each function with sizes in the profile that torch ignores. Its seconds are 0 (not measured)."""
    first = {(miss.location.file, miss.location.line): miss for miss in reversed(run.profile_misses)}
    for miss in reversed(first.values()):
        title = f"learns its dynamic sizes again: {miss.profile} has it with another closure"
        yield Finding(RULE.id, title, miss.location, 0.0, (), _ADVICE)


RULE = RunRule(id="DX404", title="the profile has this function with another closure", find=_find)
