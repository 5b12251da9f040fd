"""Advice rules DX404 and DX405: what of a profile of dynamic sizes was of no use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynx.advice.names import spoken
from dynx.advice.rule import Rule, RuleAtLine
from dynx.records.finding import Finding
from dynx.records.observed import TORCHS_PROFILE, ProfileMiss, Specialized

CLOSURE = Rule("DX404", "the profile has this function with another closure")
SPECIALIZED = Rule("DX405", "a size that is dynamic in the profile is specialized")

_PORTABLE = "save the profile with dynx run --pgo, or under dynx.pgo.stable_closure_hash(), and use it in the same way"
_PRUNED = "leave it out of the profile: save it with dynx run --pgo or pgo.record().profile(), or use dynx pgo prune"
_OF_TORCH = "unset TORCH_COMPILE_JOB_ID and use dynx run --pgo profile.json, which knows the graphs that were compiled"


def find(misses: Iterable[ProfileMiss], specialized: Iterable[Specialized]) -> Iterator[Finding]:
    """Yield a finding for each function that learns its sizes again, and for each line that specializes a size of the profile.

    Both cost time in later processes, so that their cost in this run is not known.
    """
    seen: set[RuleAtLine] = set()
    for miss in misses:
        place = RuleAtLine(CLOSURE.id, miss.location.file, miss.location.line)
        if place not in seen:
            seen.add(place)
            title = f"learns its dynamic sizes again: {miss.profile} has it with another closure"
            yield Finding(CLOSURE.id, title, miss.location, 0.0, (), _PORTABLE)
    for fixed in specialized:
        if fixed.profile is None or fixed.location is None:
            continue
        place = RuleAtLine(SPECIALIZED.id, fixed.location.file, fixed.location.line)
        if place not in seen:
            seen.add(place)
            title = f"{spoken(fixed.source)} is dynamic in {fixed.profile}, and this line needs its value"
            advice = _OF_TORCH if fixed.profile == TORCHS_PROFILE else _PRUNED
            yield Finding(SPECIALIZED.id, title, fixed.location, 0.0, (fixed.source,), advice)
