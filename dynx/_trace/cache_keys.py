"""Explain recompiles of `dynx.compile`: find the settings, such as the backend, that differ from an earlier cache key."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import NamedTuple

from dynx._torch.cache.entries import entries_of
from dynx._torch.compilation.isolation import copies_of, original_of
from dynx.records import Location, Reason


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The key by which `dynx.compile` separates the cache entries of one function, and the settings that the key depends on.

    Attributes:
        value: The key itself.
        settings: The settings as text: the backend, the arguments of `dynx.compile`, torch's configuration.
        isolation: An object that is unique to a call `dynx.compile(..., isolate_recompiles=True)`, else None; a key is compared
            only with keys that have the same object.
    """

    value: Hashable
    settings: Mapping[str, str] = field(compare=False)
    isolation: object = field(default=None, compare=False)


class KeyedEntry(NamedTuple):
    """The key for which a cache entry was compiled, and the compile id of the entry."""

    key: CacheKey
    compile_id: str


class FunctionKey(NamedTuple):
    """Key of a function: its code object and file, and the number of earlier `torch._dynamo.reset()` calls (the generation).

    Code objects compare by value, so that all copies of a function's code object, each of which has a cache of its own, belong
    to one key. The comparison of code objects ignores their files, so the file is part of the key.
    """

    generation: int
    code: CodeType
    file: str


class CompiledKeys:
    """The cache keys (`CacheKey`) with which `dynx.compile` compiled each function since the last `torch._dynamo.reset()`."""

    def __init__(self) -> None:
        self._entries: dict[FunctionKey, list[KeyedEntry]] = {}

    def clear(self) -> None:
        self._entries.clear()

    def add(self, generation: int, code: CodeType, key: CacheKey, compile_id: str) -> None:
        """Add the key of a compilation, and drop keys from before the last reset, which has cleared torch's cache."""
        for function in [function for function in self._entries if function.generation < generation]:
            del self._entries[function]
        entries = self._entries.setdefault(FunctionKey(generation, code, code.co_filename), [])
        entries[:] = [*(entry for entry in entries if entry.key != key), KeyedEntry(key, compile_id)]

    def changes(self, generation: int, code: CodeType, key: CacheKey, call_site: Location | None) -> tuple[Reason, ...]:
        """Return a `Reason` at `call_site` for each setting that differs between `key` and the most similar earlier key."""
        entries = self._entries.get(FunctionKey(generation, code, code.co_filename), ())
        return changes([*entries, *in_cache(code)], key, call_site)


def in_cache(code: CodeType) -> list[KeyedEntry]:
    """Return the cache key and the compile id of each entry in torch's cache that `dynx.compile` made for a function.

    With torch 2.11, dynx gives each backend a copy of the code object; the entries of all copies are included.
    """
    original = original_of(code)
    entries = (entry for copy in (original, *copies_of(original)) for entry in entries_of(copy))
    return [KeyedEntry(entry.cache_key, entry.compile_id) for entry in entries if entry.cache_key is not None]


def changes(entries: Sequence[KeyedEntry], key: CacheKey, call_site: Location | None) -> tuple[Reason, ...]:
    """Return a `Reason` for each setting that differs between `key` and the most similar key in `entries`.

    The result is empty if `entries` has no key, or an equal key. Keys with a different `isolation` do not count.
    """
    entries = [entry for entry in entries if entry.key.isolation is key.isolation]
    if not entries or any(entry.key == key for entry in entries):
        return ()
    candidates = [([*_changed_settings(entry.key, key)], entry) for entry in reversed(entries)]
    names, nearest = min(candidates, key=lambda candidate: len(candidate[0]))
    return tuple(_reason(name, nearest, key, call_site) for name in names or ["backend"])


def _changed_settings(before: CacheKey, now: CacheKey) -> Iterator[str]:
    """Yield the names of the settings that both keys have, with different values.

    Only the key of a backend that may call inductor has the settings of inductor.
    """
    return (name for name in now.settings if name in before.settings and before.settings[name] != now.settings[name])


def _reason(name: str, entry: KeyedEntry, now: CacheKey, call_site: Location | None) -> Reason:
    expected, got = entry.key.settings.get(name), now.settings[name]  # equal for two backends with the same name
    return Reason("backend" if name == "backend" else "config", name, expected, got, call_site, against=entry.compile_id)
