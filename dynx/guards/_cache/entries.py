"""Entries of torch's cache as records, and back: a record finds its entry as long as that is in the cache."""

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
from dynx._trace.guard_records import node_of
from dynx.errors import StaleEntry, UsageError
from dynx.guards._cache import hits
from dynx.guards._cache.target import location_of
from dynx.records import Entry

_handles: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of guard managers, which end with their entries
_managers: WeakValueDictionary[int, Any] = WeakValueDictionary()
_codes: WeakKeyDictionary[Any, ref[CodeType]] = WeakKeyDictionary()  # weak: a code object keeps its entries
_next = itertools.count(1)


def raw_of(entry: Entry) -> RawEntry:
    """Find the version that a record describes. Raises StaleEntry when it is not in the cache any more."""
    if not isinstance(entry, Entry):
        raise UsageError(f"{show_value(entry)} is no entry\n  give one of guards.inspect(function).entries")
    manager = _managers.get(entry.handle)
    code = _codes[manager]() if manager is not None else None
    raw = entry_of(code, manager) if code is not None else None
    if raw is None:
        raise StaleEntry(
            f"entry {entry.id} of {entry.location} is not in the cache any more: it was evicted, or torch was reset\n"
            "  call guards.inspect again"
        )
    return raw


def record_of(raw: RawEntry) -> Entry:
    facts = subscribers.facts_of(raw.compile_id)
    handle = _handles.get(raw.guards)
    if handle is None:
        handle = _handles[raw.guards] = next(_next)
        _managers[handle], _codes[raw.guards] = raw.guards, ref(raw.code)
    return Entry(
        subscribers.generation(),
        raw.compile_id,
        location_of(raw.code),
        raw.backend,
        node_of(guard_tree.tree_of(raw.guards), raw.code, facts.requests if facts is not None else None),
        config={} if raw.cache_key is None else {k: v for k, v in raw.cache_key.settings.items() if k != "backend"},
        seconds=seconds_of(raw.compile_id),
        hits=hits.counted(raw.guards),
        resumes=resumed_at(raw.code),
        is_pinned=raw.is_pinned,
        handle=handle,
    )
