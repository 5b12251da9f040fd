"""Why cache entries do not fit a call, for what asks about entries that dynx may not have watched being compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.guard_failures import why_not
from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.compilation.frame import backend_name
from dynx._trace import subscribers
from dynx._trace.guard_records import info_of
from dynx._trace.guard_requests import short_source, whole
from dynx._trace.guard_text import parse_entry
from dynx._trace.recompile_reason import explain
from dynx._trace.user_location import call_site
from dynx.guards._cache.recompiles import ruled
from dynx.records import Location, Reason


def reasons_of(
    entries: Iterable[RawEntry], locals: Mapping[str, Any], globals: Mapping[str, Any], backend: Any
) -> tuple[Reason, ...]:
    """Give the first failed guard of each entry, with the advice rule that applies."""
    site = call_site()
    return tuple(_reason(each, locals, globals, backend, site) for each in entries)


def _reason(
    entry: RawEntry, locals: Mapping[str, Any], globals: Mapping[str, Any], backend: Any, site: Location | None
) -> Reason:
    failed = parse_entry(why_not(entry.guards, entry.compile_id, locals, backend))
    reason = explain(failed, subscribers.facts_of(entry.compile_id), locals, globals, backend_name(backend), site)
    return ruled(reason if reason.location is not None else replace(reason, location=_kept_by_torch(entry, reason)))


def _kept_by_torch(entry: RawEntry, reason: Reason) -> Location | None:
    """Give the line that torch keeps with a guard of the same value, which its message of a tensor leaves out."""
    source = whole(reason.source)
    for node in tree_of(entry.guards).walk():
        if short_source(node.source) == source:
            for guard in node.guards:
                for text in guard.texts:
                    if (location := info_of(guard.type, text, entry.code, None).location) is not None:
                        return location
    return None
