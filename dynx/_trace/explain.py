"""From a failed guard to the reason a user understands: both values, and the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynx._trace import values
from dynx._trace.reasons import FailedEntry, ParsedGuard
from dynx._trace.requesters import lines_for
from dynx.records import Location, Reason

_PART = re.compile(r"\.(?:size|stride)\(\)\[\d+\]$")   # of a tensor; what holds the tensor is the question
_AMBIENT = ("global_state", "backend")      # no line asked for these: the call's line is the one to look at


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """What was known when an entry was compiled; plain data."""

    requests: Mapping[str, tuple[Location, ...]]
    state: Mapping[str, str]


def explain(
    entry: FailedEntry,
    facts: EntryFacts | None,
    locals: Mapping[str, Any],
    globals: Mapping[str, Any],
    call_site: Location | None,
) -> Reason:
    """Make the record of one failed guard; `facts` are None for an entry compiled before dynx listened."""
    guard = entry.guard
    expected, got = _values(guard, facts, locals, globals)
    requesters = () if guard.kind in _AMBIENT or facts is None else lines_for(guard.source, dict(facts.requests))
    location = call_site if guard.kind in _AMBIENT else requesters[0] if requesters else _told_by_torch(guard, call_site)
    return Reason(
        guard.kind, guard.source, expected, got, location,
        against=entry.against or None,
        holder=values.holder(_PART.sub("", guard.source), locals, globals) if guard.kind not in _AMBIENT else None,
        requesters=requesters,
        text=guard.text,
    )


def _values(
    guard: ParsedGuard, facts: EntryFacts | None, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    if guard.kind == "global_state":
        return _changed_state(guard.source, facts)
    if guard.got is not None:
        return guard.expected, guard.got
    if guard.kind == "length":
        return guard.expected, values.length(guard.source, locals, globals)
    if guard.kind == "shape":
        return guard.expected, _size(guard.source, locals, globals)
    if guard.kind == "type":
        return guard.expected, values.type_name(guard.source, locals, globals)
    return guard.expected, values.describe(guard.source, locals, globals)


def _changed_state(fields: str, facts: EntryFacts | None) -> tuple[str | None, str | None]:
    """Give both values of the ambient state that changed; torch only names the fields."""
    from dynx._torch.metrics import global_state

    now = global_state()
    before = facts.state if facts is not None else {}

    def text(state: Mapping[str, str]) -> str | None:
        known = [f"{field} {state[field]}" for field in fields.split() if field in state]
        return ", ".join(known) or None

    return text(before), text(now)


def _size(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    owner, _, what = source.rpartition(".")
    kind, _, dim = what.partition("()[")
    tensor = values.resolve(owner, locals, globals)
    sizes = values.shape_of(tensor) if kind == "size" else None
    index = dim.rstrip("]")
    return str(sizes[int(index)]) if sizes is not None and index.isdigit() and int(index) < len(sizes) else None


def _told_by_torch(guard: ParsedGuard, call_site: Location | None) -> Location | None:
    """Use the line in torch's message; before 2.13 its path is shortened and only good when the call site's file ends so."""
    if guard.location is None:
        return None
    file, line, function = guard.location
    from dynx._torch.stacks import RawFrame
    from dynx._trace.userline import user_location

    if not file.startswith(("/", "<")):
        own = call_site.file if call_site is not None else ""
        if not own.endswith(file):
            return call_site
        file = own
    return user_location((RawFrame(file, line, function),), call_site)
