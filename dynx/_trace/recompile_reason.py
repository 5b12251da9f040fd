"""From a failed guard to the reason a user understands: both values, and the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dynx._torch.compilation.metrics import global_state
from dynx._torch.tracing.stack import RawFrame, StackParts
from dynx._trace import custom_guards, safe_read
from dynx._trace.guard_requests import lines_for, short_source, whole
from dynx._trace.guard_text import FailedEntry, ParsedGuard
from dynx._trace.user_location import named, user_location
from dynx.records import Location, Reason

_AMBIENT = ("global_state", "backend")  # no line asked for these: the call's line is the one to look at


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """What was known when an entry was compiled; plain data."""

    requests: Mapping[str, list[StackParts]]
    state: Mapping[str, str]
    backend: str
    objects: Mapping[str, str] = field(default_factory=dict)  # what was guarded by identity, by source as torch shortens it


class SeenValues:
    """The values for which each function has been compiled, by source.

    Torch lists one failed guard per cache entry. With several values alternating, most entries fail for a value that has an
    entry of its own; what made the recompile necessary is a value that has none yet.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], dict[str, set[str]]] = {}

    def clear(self) -> None:
        self._seen.clear()

    def most_telling_first(self, function: tuple[int, int], reasons: Sequence[Reason]) -> tuple[Reason, ...]:
        """Put reasons with a value that is new for this function first; otherwise keep torch's order, newest entry first."""
        seen = self._seen.setdefault(function, {})
        for reason in reasons:
            if reason.expected is not None:
                seen.setdefault(reason.source, set()).add(reason.expected)

        def rank(reason: Reason) -> int:
            if reason.got is None or reason.got in seen.get(reason.source, ()):
                return 2
            # torch does not tell which object it expected, so an alternating one always looks new
            return 1 if reason.kind in ("object", "function") else 0

        ordered = sorted(reasons, key=rank)
        for reason in reasons:
            if reason.got is not None:
                seen.setdefault(reason.source, set()).add(reason.got)
        return tuple(ordered)


def explain(
    entry: FailedEntry,
    facts: EntryFacts | None,
    locals: Mapping[str, Any],
    globals: Mapping[str, Any],
    backend: str,
    call_site: Location | None,
) -> Reason:
    """Make the record of one failed guard; `facts` are None for an entry compiled before dynx listened."""
    guard = _named_attribute(entry.guard, facts, locals, globals)
    expected, got = _values(guard, facts, locals, globals)
    if guard.kind == "backend":
        expected, got = facts.backend if facts is not None else None, backend
    requesters: tuple[Location, ...] = ()
    if facts is not None and guard.kind not in _AMBIENT:
        requesters = lines_for(guard.source, facts.requests, call_site)
    location = _location(guard, requesters, call_site)
    return Reason(
        guard.kind,
        guard.source,
        expected,
        got,
        named(location) if location is not None else None,
        against=entry.against or None,
        holder=safe_read.holder(whole(guard.source), locals, globals) if guard.kind not in _AMBIENT else None,
        requesters=tuple(map(named, requesters)),
        text=guard.text,
    )


def _named_attribute(
    guard: ParsedGuard, facts: EntryFacts | None, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> ParsedGuard:
    """Name the attribute that went away, where torch only names the object that had it."""
    if facts is None or not guard.text.startswith("getattr failed"):
        return guard
    known = (short_source(each) for each in facts.requests)
    gone = [each for each in known if each.rpartition(".")[0] == guard.source and safe_read.is_absent(each, locals, globals)]
    return replace(guard, source=gone[0]) if len(gone) == 1 else guard


def _values(
    guard: ParsedGuard, facts: EntryFacts | None, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    if guard.kind == "global_state":
        expected, got = _changed_state(guard.source, facts)
        return expected or guard.expected, got
    if guard.expected == "a tensor type":  # 2.11 and 2.13 say no more
        return facts.objects.get(guard.source, guard.expected) if facts is not None else guard.expected, guard.got
    if guard.kind in ("object", "function"):
        return _identities(guard, facts, safe_read.describe(guard.source, locals, globals))
    if guard.got is not None:
        return guard.expected, guard.got
    if guard.kind == "alias" and guard.expected is not None and guard.expected.startswith("is "):
        return guard.expected, guard.expected.replace("is ", "is not ", 1)
    if guard.kind == "custom":
        return guard.expected, custom_guards.answer(guard.source)
    if guard.kind == "length":
        return guard.expected, safe_read.length(guard.source, locals, globals)
    if guard.kind == "keys":
        return guard.expected, safe_read.keys(guard.source, locals, globals)
    if guard.kind == "shape":
        return guard.expected, _size(guard.source, locals, globals)
    if guard.kind == "type":
        return guard.expected, safe_read.type_name(guard.source, locals, globals)
    return guard.expected, safe_read.describe(guard.source, locals, globals)


def _identities(guard: ParsedGuard, facts: EntryFacts | None, got: str | None) -> tuple[str | None, str | None]:
    """Describe both objects; of what was there torch keeps only the type, and dynx what it saw being compiled."""
    expected = facts.objects.get(guard.source) if facts is not None else None
    if expected is None:
        return guard.expected, got
    return expected, f"another {got}" if got == expected else got


def _changed_state(fields: str, facts: EntryFacts | None) -> tuple[str | None, str | None]:
    """Give both values of the ambient state that changed; torch only names the fields."""
    now = global_state()
    before = facts.state if facts is not None else {}

    def text(state: Mapping[str, str]) -> str | None:
        known = [f"{field} {state[field]}" for field in fields.split() if field in state]
        return ", ".join(known) or None

    return text(before), text(now)


def _size(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    owner, _, what = source.rpartition(".")
    kind, _, dim = what.partition("()[")
    tensor = safe_read.resolve(owner, locals, globals)
    sizes = safe_read.shape_of(tensor) if kind == "size" else None
    index = dim.rstrip("]")
    return str(sizes[int(index)]) if sizes is not None and index.isdigit() and int(index) < len(sizes) else None


def _location(guard: ParsedGuard, requesters: tuple[Location, ...], call_site: Location | None) -> Location | None:
    if guard.kind in _AMBIENT:
        return call_site
    told = _told_by_torch(guard, requesters, call_site)
    if guard.kind == "shape" and told is not None:
        return told  # the branch that made the guard; the requesters only used the tensor
    return requesters[0] if requesters else told


def _told_by_torch(guard: ParsedGuard, requesters: tuple[Location, ...], call_site: Location | None) -> Location | None:
    """Use the line in torch's message; its path is shortened, so it must be the end of a file that is known otherwise."""
    if guard.location is None:
        return None
    shortened, line, function = guard.location
    known = [each.file for each in (*requesters, *((call_site, call_site.own) if call_site is not None else ()))]
    file = shortened if shortened.startswith(("/", "<")) else next((f for f in known if f.endswith(shortened)), None)
    return user_location((RawFrame(file, line, function),), call_site) if file is not None else None
