"""What became of each graph of a run in torch's caches on disk, as the caches themselves report it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os.path import basename
from typing import NamedTuple, Protocol

from dynx.records import CacheEvent, Location
from dynx.records.cache_key import CacheKey, KeySettings


class HasCacheKeys(Protocol):
    """A `Run` or `Watch` with `detail="full"`, or a `Recorder`."""

    @property
    def cache_keys(self) -> Sequence[CacheKey]: ...
    @property
    def cache_settings(self) -> Sequence[KeySettings]: ...
    @property
    def caches(self) -> Sequence[CacheEvent]: ...


class Lookup(NamedTuple):
    """A key of a run, and whether the cache had it; None where the run does not say."""

    key: CacheKey
    is_hit: bool | None


def lookups(run: HasCacheKeys) -> list[list[Lookup]]:
    """Return the lookups of each compilation, that in the AOTAutograd cache first.

    A graph that is in the AOTAutograd cache is looked up nowhere else, although torch may make a key for the FX graph cache. A
    key that was looked up twice, as after a reset, counts once: as a miss, if it was one.
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
    """Return whether all lookups of one cache in a compilation were hits; None for some of forward and backward graph."""
    return {"hit"} <= results if ("hit" in results) != ("miss" in results) else None


def digest(key: CacheKey) -> tuple[str, str]:
    """Return the identity of a key: the cache and the hash."""
    return key.cache, key.digest


def function_of(location: Location | None) -> tuple[str, str] | None:
    """Return the file's name and the function of a key or event, by which two runs have it in common."""
    return (basename(location.file), location.function) if location is not None else None


def of_function(events: Iterable[CacheEvent], cache: str, location: Location | None) -> list[CacheEvent]:
    """Return the events of one cache and function."""
    function = function_of(location)
    return [event for event in events if event.cache == cache and function_of(event.location) == function]
