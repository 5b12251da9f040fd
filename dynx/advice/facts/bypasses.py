"""Graphs that torch could not store in a compile cache on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.observed import CacheEvent
from dynx.records.run_records import RunRecords

_CACHES = ("fx_graph", "aot_autograd")  # a graph that bypasses the first cache bypasses the second too


def bypasses(run: RunRecords, cache: str) -> Iterable[tuple[Location, Sequence[CacheEvent]]]:
    """Return the location and the bypass events of each function with a graph that could not be stored in `cache`.

    A graph that bypasses the FX graph cache bypasses AOTAutograd's cache too. Its function is returned only if `cache` is the
    FX graph cache.
    """
    groups: dict[tuple[str, int], tuple[Location, list[CacheEvent]]] = {}
    locations = {compile.key: compile.location for compile in run.compiles}
    known = [event for event in run.caches if event.result == "bypass" and event.cache in _CACHES]
    for event in sorted(known, key=lambda event: _CACHES.index(event.cache)):
        location = event.location or locations.get((event.generation, event.id))
        if location is not None:
            groups.setdefault((location.file, location.line), (location, []))[1].append(event)
    return [(location, events) for location, events in groups.values() if events[0].cache == cache]


def finding_of(run: RunRecords, rule: str, location: Location, events: Sequence[CacheEvent], advice: str) -> Finding:
    """Return the finding for a function that is not cached; its seconds are the backend's time, spent again in each process."""
    first = events[0]
    seconds = next((each.phases.get("backend", 0.0) for each in run.compiles if each.key == (first.generation, first.id)), 0.0)
    reasons = tuple(dict.fromkeys(event.reason or "torch gives no reason" for event in events))
    count = sum(event.count for event in events)
    return Finding(rule, f"not cached on disk: {reasons[0]}", location, seconds, reasons, advice, count)
