"""Rule DX405: a line of code specializes a size that is dynamic in the PGO profile."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.names import spoken
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.observed import TORCHS_PROFILE
from dynx.records.run_records import RunRecords

_PRUNED = "leave it out of the profile: save it with dynx run --pgo or pgo.record().profile(), or use dynx pgo prune"
_OF_TORCH = "unset TORCH_COMPILE_JOB_ID and use dynx run --pgo profile.json, which knows the graphs that were compiled"


def _find(run: RunRecords) -> Iterator[Finding]:
    """Yield a finding for each line that specializes a dynamic size of the profile.

    Its seconds are 0: the cost, cache misses in other processes, is not measured.
    """
    seen: set[tuple[str, int]] = set()
    for fixed in run.specialized:
        if fixed.profile is None or fixed.location is None or (line := (fixed.location.file, fixed.location.line)) in seen:
            continue
        seen.add(line)
        title = f"{spoken(fixed.source)} is dynamic in {fixed.profile}, and this line needs its value"
        advice = _OF_TORCH if fixed.profile == TORCHS_PROFILE else _PRUNED
        yield Finding(RULE.id, title, fixed.location, 0.0, (fixed.source,), advice)


RULE = RunRule(id="DX405", title="a size that is dynamic in the profile is specialized", find=_find)
