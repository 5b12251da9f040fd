"""Convert torch's cache entries to `Entry` records, and find the cache entry that a record describes."""

from __future__ import annotations

import itertools
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from dynx._torch.cache import guard_tree
from dynx._torch.cache.entries import entry_of
from dynx._torch.cache.entry import RawEntry
from dynx._torch.compilation.frame import resumed_at
from dynx._torch.compilation.metrics import seconds_of
from dynx._torch.tracing.render import show_value
from dynx._trace import subscribers
from dynx._trace.guards.records import node_of
from dynx.errors import StaleEntry, UsageError
from dynx.guards._cache import hits
from dynx.guards._cache.target import location_of
from dynx.records import Entry

# A guard manager (torch's GuardManagerWrapper, which is not typed) is freed with its entry. Handles are never reused, so a
# record cannot find a different entry, even if torch reuses the compile id after a reset.
_handles: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_managers: WeakValueDictionary[int, Any] = WeakValueDictionary()
_codes: WeakKeyDictionary[Any, ref[CodeType]] = WeakKeyDictionary()  # weak, because a code object keeps its entries alive
_next_handle = itertools.count(1)


def raw_of(entry: Entry) -> RawEntry:
    """Find torch's cache entry for an `Entry` record.

    Raises StaleEntry if it is not in the cache any more, UsageError if `entry` is not an `Entry`.
    """
    if not isinstance(entry, Entry):
        raise UsageError(f"{show_value(entry)} is not a cache entry\n  pass one of guards.inspect(fn).entries")
    manager = _managers.get(entry.handle)
    code = _codes[manager]() if manager is not None else None
    raw = entry_of(code, manager) if code is not None else None
    if raw is None:
        raise StaleEntry(
            f"cache entry {entry.id} of {entry.location} is gone: it was evicted, or torch._dynamo was reset\n"
            "  call guards.inspect(fn) again"
        )
    return raw


def record_of(raw: RawEntry) -> Entry:
    """Return the `Entry` record of a cache entry of torch."""
    facts = subscribers.facts_of(raw.compile_id, raw.guards)
    handle = _handles.get(raw.guards)
    if handle is None:
        handle = _handles[raw.guards] = next(_next_handle)
        _managers[handle], _codes[raw.guards] = raw.guards, ref(raw.code)
    settings = {} if raw.cache_key is None else raw.cache_key.settings
    return Entry(
        subscribers.generation(),
        raw.compile_id,
        location_of(raw.code),
        raw.backend,
        node_of(guard_tree.tree_of(raw.guards), raw.code, facts.requests if facts is not None else None),
        config={name: text for name, text in settings.items() if name != "backend"},
        seconds=seconds_of(raw.compile_id),
        hits=hits.hits_of(raw.guards),
        resumes=resumed_at(raw.code),
        is_pinned=raw.is_pinned,
        handle=handle,
    )
