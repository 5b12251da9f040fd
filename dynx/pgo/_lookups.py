"""Combine the cache keys of a run with the hits and misses that torch's caches on disk report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os.path import basename
from typing import NamedTuple, Protocol

from dynx.records import CacheEvent, Location
from dynx.records.cache_key import CacheKey, KeySettings


class HasCacheKeys(Protocol):
    """An object with recorded cache keys: a `Run` or `Watch` with `detail="full"`, or a `Recorder`."""

    @property
    def cache_keys(self) -> Sequence[CacheKey]: ...
    @property
    def cache_settings(self) -> Sequence[KeySettings]: ...
    @property
    def caches(self) -> Sequence[CacheEvent]: ...


class Lookup(NamedTuple):
    """A cache key that torch looked up, and whether the lookup was a hit (None if the run did not record that)."""

    key: CacheKey
    is_hit: bool | None


def lookups(run: HasCacheKeys) -> list[list[Lookup]]:
    """Return each compilation's cache lookups, first in the AOTAutograd cache, then in the FX graph cache.

    After a hit in the AOTAutograd cache, keys of the FX graph cache are left out: torch may compute such keys, but does not
    look them up. A key that was looked up repeatedly, as after a reset, counts once: as a miss if any of its lookups missed.
    """
    compilations = list(_compilations(run))
    missed = {digest(one.key) for found in compilations for one in found if one.is_hit is False}
    seen: set[tuple[str, str]] = set()
    kept = []
    for found in compilations:
        new = [one for one in found if digest(one.key) not in seen and (one.is_hit is False or digest(one.key) not in missed)]
        seen.update(digest(one.key) for one in new)
        kept.append(new)
    return [found for found in kept if found]


def _compilations(run: HasCacheKeys) -> Iterator[list[Lookup]]:
    results: dict[tuple[int, str, str], set[str]] = {}
    for event in run.caches:
        results.setdefault((event.generation, event.id, event.cache), set()).add(event.result)
    groups: dict[tuple[int, str], list[CacheKey]] = {}
    for key in run.cache_keys:
        groups.setdefault(key.key, []).append(key)
    for place, keys in groups.items():
        ordered = sorted(keys, key=lambda key: key.cache != "aot_autograd")
        found = [Lookup(key, _is_hit(results.get((*place, key.cache), set()))) for key in ordered]
        yield found[:1] if found[0].key.cache == "aot_autograd" and found[0].is_hit else found


def _is_hit(results: set[str]) -> bool | None:
    """Return True if a cache returned only hits for a compilation, False if only misses; None if it returned both or none."""
    return {"hit"} <= results if ("hit" in results) != ("miss" in results) else None


def digest(key: CacheKey) -> tuple[str, str]:
    """Return what identifies a key: the name of the cache and the hash."""
    return key.cache, key.digest


def function_of(location: Location | None) -> tuple[str, str] | None:
    """Return file name and function of a location, by which graphs of two runs are matched; None without a location."""
    return (basename(location.file), location.function) if location is not None else None


def of_function(events: Iterable[CacheEvent], cache: str, location: Location | None) -> list[CacheEvent]:
    """Return the events (hits, misses, bypasses) of one cache for the function at `location`."""
    function = function_of(location)
    return [event for event in events if event.cache == cache and function_of(event.location) == function]
