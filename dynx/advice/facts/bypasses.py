"""Findings for graphs that torch could not store in a compile cache on disk."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.observed import CacheEvent
from dynx.records.run_records import RunRecords

_CACHES = ("fx_graph", "aot_autograd")  # a graph that bypasses the first cache bypasses the second too


def bypasses(run: RunRecords, cache: str, rule: str, advice: str) -> Iterator[Finding]:
    """Yield a finding, with `rule` and `advice`, for each function with a graph that `cache` (one of `_CACHES`) cannot store.

    A graph that bypasses the FX graph cache bypasses AOTAutograd's cache too; its function is reported for the FX graph cache
    only. The seconds of a finding are the time of the backend, which every process spends again.
    """
    groups: dict[tuple[str, int], tuple[Location, Compile | None, list[CacheEvent]]] = {}
    compiles = {compile.key: compile for compile in run.compiles}
    known = [event for event in run.caches if event.result == "bypass" and event.cache in _CACHES]
    for event in sorted(known, key=lambda event: _CACHES.index(event.cache)):
        compile = compiles.get((event.generation, event.id))
        location = event.location or (compile.location if compile is not None else None)
        if location is not None:
            groups.setdefault((location.file, location.line), (location, compile, []))[2].append(event)
    for location, compile, events in groups.values():
        if events[0].cache == cache:
            seconds = compile.backend_seconds if compile is not None else 0.0
            reasons = tuple(dict.fromkeys(" ".join((event.reason or "torch gives no reason").split()) for event in events))
            title = f"not cached on disk: {reasons[0].partition('. ')[0]}"  # the first sentence
            count = sum(event.count for event in events)
            yield Finding(rule, title, location, seconds, reasons, advice, count)
