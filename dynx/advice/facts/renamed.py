"""Graphs that were compiled again although they differ from an earlier graph only in the names of symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynx.advice.facts.key_causes import causes_of
from dynx.records.cache_key import CacheCause, CacheKey
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def renamed(run: RunRecords, rule: str) -> Iterator[Finding]:
    """Yield a finding for each function's first graph that was compiled again only because its symbols have other names.

    `rule` must apply to it: DX406 if `dynx.symbols.install` named the symbols of only one of the two graphs, else DX403.
    A finding's seconds are the time of the backend. Yield nothing if the run was recorded without `watch(detail="full")`.
    """
    missed = {(event.generation, event.id) for event in run.caches if event.result == "miss" and event.cache == "aot_autograd"}
    seconds = {compile.key: compile.backend_seconds for compile in run.compiles}
    values = {settings.digest: settings.values for settings in run.cache_settings}
    earlier: list[CacheKey] = []
    reported = set()
    for key in run.cache_keys:
        if key.cache != "aot_autograd" or key.location is None:
            continue
        line = key.location.file, key.location.line
        if key.key in missed and line not in reported and (causes := _names_of(key, earlier, values)):
            reported.add(line)
            if causes[0].rule == rule:
                names = tuple(f"{cause.component}: {cause.before}, then {cause.after}" for cause in causes)
                title, backend = f"compiled again: {names[0]}", seconds.get(key.key, 0.0)
                yield Finding(rule, title, key.location, backend, names, causes[0].advice)
        earlier.append(key)


def _names_of(key: CacheKey, earlier: list[CacheKey], values: Mapping[str, Mapping[str, str]]) -> tuple[CacheCause, ...]:
    """Return a cause per renamed symbol if `key` and an earlier key differ in nothing else. `values`: settings by digest."""
    for other in reversed(earlier):
        if other.location == key.location and other.digest != key.digest:
            causes = tuple(causes_of(other, key, values.get(other.settings), values.get(key.settings)))
            if all(cause.kind == "symbol name" for cause in causes):
                return causes
    return ()
