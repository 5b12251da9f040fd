"""Advice rules DX403 and DX406: a graph that was compiled again because its symbols had other names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dynx.advice.caches.key_causes import causes_of
from dynx.advice.rule import Rule
from dynx.records.cache_key import CacheCause, CacheKey, KeySettings
from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.observed import CacheEvent

RENAMED = Rule("DX403", "a graph missed the caches because a symbol has another name")
SCHEMES = Rule("DX406", "a graph missed the caches because its symbols are named by another scheme")


def find(
    keys: Iterable[CacheKey], settings: Iterable[KeySettings], events: Iterable[CacheEvent], compiles: Iterable[Compile]
) -> Iterator[Finding]:
    """Yield a finding for each function of which an earlier graph of the run differs in nothing but the names of symbols.

    Needs the keys that `watch(detail="full")` keeps; the cost is the compile time of the backend.
    """
    missed = {(event.generation, event.id) for event in events if event.result == "miss" and event.cache == "aot_autograd"}
    seconds = {compile.key: compile.phases.get("backend", 0.0) for compile in compiles}
    values = {one.digest: one.values for one in settings}
    earlier: list[CacheKey] = []
    reported = set()
    for key in keys:
        if key.cache != "aot_autograd" or key.location is None:
            continue
        place = key.location.file, key.location.line
        if key.key in missed and place not in reported and (causes := _names_of(key, earlier, values)):
            reported.add(place)
            names = tuple(f"{cause.component}: {cause.before}, then {cause.after}" for cause in causes)
            rule = SCHEMES if causes[0].rule == SCHEMES.id else RENAMED
            lost = seconds.get(key.key, 0.0)
            yield Finding(rule.id, f"compiled again: {names[0]}", key.location, lost, names, causes[0].advice)
        earlier.append(key)


def _names_of(key: CacheKey, earlier: list[CacheKey], values: Mapping[str, Mapping[str, str]]) -> tuple[CacheCause, ...]:
    """Return the renamed symbols if there is an earlier key that differs in nothing else."""
    for other in reversed(earlier):
        if other.location == key.location and other.digest != key.digest:
            causes = tuple(causes_of(other, key, values.get(other.settings), values.get(key.settings)))
            if all(cause.kind == "symbol name" for cause in causes):
                return causes
    return ()
