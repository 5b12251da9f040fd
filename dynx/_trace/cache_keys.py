"""For which backend and configuration a function was compiled by `dynx.compile`, to tell what changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType

from dynx._torch.cache.entries import entries_of
from dynx._torch.compilation.isolation import copies_of, original_of
from dynx.records import Location, Reason


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What torch's cache entries are kept apart by; two are equal when their values are."""

    value: Hashable
    settings: Mapping[str, str] = field(compare=False)  # in words: the backend, arguments of the call, torch's configuration


class CompiledFor:
    """The keys and compile ids of each function."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, CodeType, str], list[tuple[CacheKey, str]]] = {}

    def clear(self) -> None:
        self._known.clear()

    def remember(self, generation: int, code: CodeType, key: CacheKey, compile_id: str) -> None:
        """Keep for what a function was compiled; what was compiled before a reset is gone."""
        for old in [each for each in self._known if each[0] < generation]:
            del self._known[old]
        known = self._known.setdefault((generation, code, code.co_filename), [])
        known[:] = [*(each for each in known if each[0] != key), (key, compile_id)]

    def changes(self, generation: int, code: CodeType, key: CacheKey, call_site: Location | None) -> tuple[Reason, ...]:
        """Give what differs from the most similar key for which a function was compiled; empty if it is the first, or the same.

        Code objects are compared by value: a copy that was made to have a cache of its own counts as the original.
        """
        known = self._known.get((generation, code, code.co_filename), ())
        return changes([*known, *in_cache(code)], key, call_site)


def in_cache(code: CodeType) -> list[tuple[CacheKey, str]]:
    """List the keys and compile ids of what is in the cache for a function."""
    original = original_of(code)
    entries = (each for one in (original, *copies_of(original)) for each in entries_of(one))
    return [(each.cache_key, each.compile_id) for each in entries if each.cache_key is not None]


def changes(known: Sequence[tuple[CacheKey, str]], key: CacheKey, call_site: Location | None) -> tuple[Reason, ...]:
    """Give what differs from the most similar of the keys that are known; empty where there is none, or the same."""
    if not known or any(each == key for each, _ in known):
        return ()
    differences = [([*_differences(before, key)], before, compile_id) for before, compile_id in reversed(known)]
    names, before, compile_id = min(differences, key=lambda each: len(each[0]))
    return tuple(_reason(name, before, key, compile_id, call_site) for name in names or ["backend"])


def _differences(before: CacheKey, now: CacheKey) -> Iterator[str]:
    return (name for name in now.settings if before.settings.get(name) != now.settings[name])


def _reason(name: str, before: CacheKey, now: CacheKey, compile_id: str, call_site: Location | None) -> Reason:
    expected, got = before.settings.get(name), now.settings[name]
    if expected == got:  # two backends of one name
        got = f"another {got}"
    return Reason("backend" if name == "backend" else "config", name, expected, got, call_site, against=compile_id)
