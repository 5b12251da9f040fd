"""Find in each cache entry the guard that fails for a call, even if the entry was compiled outside `dynx.watch()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dynx._reading.user_location import call_site
from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.guard_failures import failure_reason
from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.compilation.frame import backend_name
from dynx._trace import subscribers
from dynx._trace.guards.records import info_of
from dynx._trace.guards.requests import short_source, tensor_source
from dynx._trace.guards.text import parse_entry
from dynx._trace.recompile_reason import explain
from dynx.advice import rule_of_reason
from dynx.records import Location, Reason


def reasons_of(
    entries: Iterable[RawEntry], locals: Mapping[str, Any], globals: Mapping[str, Any], backend: Any
) -> tuple[Reason, ...]:
    """Return for each cache entry the first guard that fails for a call with these locals, globals and backend.

    Each `Reason` also has the id of the rule whose advice applies to it, such as DX102, or None.
    """
    site = call_site()
    return tuple(_reason(entry, locals, globals, backend, site) for entry in entries)


def _reason(
    entry: RawEntry, locals: Mapping[str, Any], globals: Mapping[str, Any], backend: Any, site: Location | None
) -> Reason:
    failed = parse_entry(failure_reason(entry.guards, entry.compile_id, locals, backend))
    reason = explain(failed, subscribers.facts_of(entry.compile_id, entry.guards), locals, globals, backend_name(backend), site)
    located = reason if reason.location is not None else replace(reason, location=_location_in_torch(entry, reason))
    return replace(located, rule=rule_of_reason(located))


def _location_in_torch(entry: RawEntry, reason: Reason) -> Location | None:
    """Return the user's line that requested a failed tensor guard, from the guard tree: torch's message does not contain it."""
    source = tensor_source(reason.source)
    for node in tree_of(entry.guards).walk():
        if short_source(node.source) == source:
            for guard in node.guards:
                for text in guard.texts:
                    if (location := info_of(guard.type, text, entry.code, None).location) is not None:
                        return location
    return None
