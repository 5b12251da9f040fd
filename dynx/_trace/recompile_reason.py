"""Explain a recompile: convert torch's message about a failed guard to a `Reason`, with line, expected and actual value."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from dynx._bytecode import safe_read
from dynx._reading.user_location import code_at, named, user_location
from dynx._torch.compilation.metrics import global_state
from dynx._torch.tracing.stack import RawFrame, StackParts
from dynx._trace import custom_guards
from dynx._trace.guards.requests import by_short_source, lines_for, tensor_source
from dynx._trace.guards.text import KEY_OF_DICT, FailedEntry, ParsedGuard
from dynx.records import Location, Reason

_MAX_CHANGED_KEYS = 3  # listed keys of a dict
_MAX_DIFFERING = 8  # listed attributes that differ between two instances
_ADDRESS = re.compile(r"___check_obj_id\(.*, (?P<id>\d+)\)", re.S)
_KEY = re.compile(KEY_OF_DICT, re.S)
_AMBIENT = ("global_state", "backend")  # kinds that no line requested: the location is the call site


class WeakSelf(NamedTuple):
    """Weak references to the argument `self` of a call and to its class, which is known after `self` was freed too."""

    object: Callable[[], Any]
    of_class: Callable[[], type | None]


@dataclass(frozen=True)
class EntryFacts:
    """Plain data about a cache entry, recorded when the entry is compiled, and used to explain later recompiles.

    Sources are shortened, as in torch's messages, only when they are needed, because few entries are ever explained.
    """

    requested: Mapping[str, list[StackParts]]  # the stacks that requested guards, by source
    state: Mapping[str, str]  # torch's global state
    backend: str | None
    described: safe_read.Described = field(default_factory=lambda: safe_read.Described({}, {}, {}))  # guarded values
    instance: WeakSelf | None = None

    @cached_property
    def requests(self) -> dict[str, list[StackParts]]:
        return by_short_source(self.requested)

    @cached_property
    def values(self) -> safe_read.Described:
        objects, keys, types = self.described
        return safe_read.Described(by_short_source(objects), by_short_source(keys), by_short_source(types))


_UNKNOWN = EntryFacts({}, {}, None)


class FrameKey(NamedTuple):
    """Key of a frame: torch's frame number, and the number of resets before it, as `reset()` restarts the frame numbers."""

    generation: int
    number: int  # the first part of its compile ids


class SeenValues:
    """The guarded values for which each frame has been compiled, by source.

    torch lists one failed guard per cache entry of the frame. If a value alternates between calls, many of these guards fail
    on a value for which another entry exists; the cause of the recompile is a value for which no entry exists.
    """

    def __init__(self) -> None:
        self._values: dict[FrameKey, dict[str, set[str]]] = {}

    def clear(self) -> None:
        self._values.clear()

    def new_values_first(self, frame: FrameKey, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
        """Return `reasons`, likely causes first: bounds on symbolic sizes, and values that `frame` was not compiled for yet."""
        seen = self._values.setdefault(frame, {})
        for reason in reasons:
            if reason.expected is not None:
                seen.setdefault(reason.source, set()).add(_as_value(reason.expected))

        def rank(reason: Reason) -> int:
            if _limits_dynamic(reason, reasons):
                return 0
            if reason.got is None or _as_value(reason.got) in seen.get(reason.source, ()):
                return 2
            # torch does not report which object it expected, so an alternating object always looks new
            return 1 if reason.kind in ("object", "function") else 0

        ordered = sorted(reasons, key=rank)
        for reason in reasons:
            if reason.got is not None:
                seen.setdefault(reason.source, set()).add(_as_value(reason.got))
        return tuple(ordered)


_TYPE = re.compile(r"<class '(?:[\w.]+\.)?(?P<name>[\w<>]+)'>")


def _as_value(text: str) -> str:
    """Return the text of a value in a form that is the same for all kinds of guards: `<class 'NoneType'>` becomes `None`."""
    match = _TYPE.match(text)
    if match is None:
        return text
    return "None" if match["name"] == "NoneType" else f"a {match['name']}"


def _limits_dynamic(reason: Reason, reasons: Sequence[Reason]) -> bool:
    """Return whether a failed guard bounds a symbolic size or number that another cache entry guards as a constant.

    Such a guard explains the recompile best: without the bound, the entry with the symbol would have accepted the value.
    """
    return reason.kind == "shape" and any(
        other.kind in ("size", "value") and other.source in (reason.expected or "") and other.got not in ("0", "1", None)
        for other in reasons
    )


def explain(
    entry: FailedEntry,
    facts: EntryFacts | None,
    locals: Mapping[str, Any],
    globals: Mapping[str, Any],
    backend: str,
    call_site: Location | None,
) -> Reason:
    """Build the `Reason` why a cache entry does not match a call; `facts` is None if nothing observed its compilation."""
    facts = facts or _UNKNOWN
    guard = _name_missing_attribute(entry.guard, facts, locals, globals)
    guard = _name_changed_key(guard, facts, locals, globals)
    expected, got = (facts.backend, backend) if guard.kind == "backend" else _values(guard, facts, locals, globals)
    requesters = lines_for(guard.source, facts.requests, call_site) if guard.kind not in _AMBIENT else ()
    location = _location(guard, requesters, call_site)
    return Reason(
        guard.kind,
        guard.source,
        expected,
        got,
        named(location) if location is not None else None,
        against=entry.against or None,
        holder=safe_read.holder(tensor_source(guard.source), locals, globals) if guard.kind not in _AMBIENT else None,
        requesters=tuple(map(named, requesters)),
        text=guard.text,
        code=code_at(location),
        other_instance=_other_instance(facts, locals),
        differing=_differing(facts, locals) if guard.source.startswith("self.") else (),
        by_backend=guard.by_backend,
    )


def weak_self(locals: Mapping[str, Any]) -> WeakSelf | None:
    """Return weak references to the argument `self` of a frame and to its class, or None if it has no `self`."""
    try:
        return WeakSelf(weakref.ref(locals["self"]), weakref.ref(type(locals["self"])))
    except (KeyError, TypeError):
        return None


def _other_instance(facts: EntryFacts, locals: Mapping[str, Any]) -> str | None:
    """Return the name of the class of `self` if the entry was compiled for another instance of the class, else None."""
    before, now = facts.instance, locals.get("self")
    is_other = before is not None and before.of_class() is type(now) and before.object() is not now
    return type(now).__qualname__ if is_other else None


def count_instances(facts: Iterable[EntryFacts | None], locals: Mapping[str, Any]) -> int:
    """Return for how many instances of the class of `self` a function is compiled, the present one included."""
    now = weak_self(locals)
    before = [entry.instance for entry in facts if entry is not None]
    # an object has one weak reference, which all its entries share, so it also distinguishes instances that have been freed
    return len({id(each.object) for each in (*before, now) if each is not None and each.of_class() is type(locals.get("self"))})


def _differing(facts: EntryFacts, locals: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the guarded attributes whose values differ between `self` and the instance that the entry was compiled for."""
    instance = facts.instance.object() if facts.instance is not None else None
    if instance is None or _other_instance(facts, locals) is None:
        return ()
    before, now = {"self": instance}, {"self": locals["self"]}
    sources = [source for source in facts.requests if source.startswith("self.")]
    values = ((source, safe_read.describe(source, before, {}), safe_read.describe(source, now, {})) for source in sources)
    return tuple(source for source, old, new in values if None not in (old, new) and old != new)[:_MAX_DIFFERING]


def _name_changed_key(
    guard: ParsedGuard, facts: EntryFacts, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> ParsedGuard:
    """Replace a failed guard on the length of a dict by one that names the new or missing keys, if these are known and few."""
    before = facts.values.keys.get(guard.source) if guard.kind == "length" else None
    now = safe_read.key_texts(guard.source, locals, globals) if before is not None else None
    if before is None or now is None:
        return guard
    new, missing = [key for key in now if key not in before], [key for key in before if key not in now]
    if len(new) + len(missing) != abs(len(now) - len(before)) or len(new) + len(missing) > _MAX_CHANGED_KEYS:
        return guard  # many keys at once: the length says more
    texts = ", ".join(new or missing)
    return replace(guard, kind="keys", expected=f"no {texts}" if new else texts, got=texts if new else f"no {texts}")


def _name_missing_attribute(
    guard: ParsedGuard, facts: EntryFacts, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> ParsedGuard:
    """Return a failed `getattr` guard with the missing attribute `x.a` as its source; torch's message names only `x`."""
    if not guard.text.startswith("getattr failed"):
        return guard
    attributes = [source for source in facts.requests if source.rpartition(".")[0] == guard.source]
    missing = [attribute for attribute in attributes if safe_read.is_absent(attribute, locals, globals)]
    return replace(guard, source=missing[0]) if len(missing) == 1 else guard


def _values(
    guard: ParsedGuard, facts: EntryFacts, locals: Mapping[str, Any], globals: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """Return the expected and the actual value of a failed guard as text; None for a value that is not known."""
    if guard.kind == "global_state":
        expected, got = _changed_state(guard.source, facts)
        return expected or guard.expected, got
    if guard.expected == "a tensor type":  # 2.11 and 2.13 give no more detail
        return facts.values.objects.get(guard.source, guard.expected), guard.got
    if guard.kind in ("object", "function"):
        expected, got = _identities(guard, facts, safe_read.describe(guard.source, locals, globals))
        address = _ADDRESS.match(guard.text)
        member = safe_read.member_at(int(address["id"]), guard.source, locals, globals) if address is not None else None
        key = _KEY.search(guard.text)
        return member or (safe_read.describe(key["key"], locals, globals) if key is not None else expected), got
    if guard.text.startswith("set.__contains__") and safe_read.contains(guard.source, guard.expected or "", locals, globals):
        return guard.got, guard.expected  # torch 2.11 omits the "not" of a member that the set must not have
    if guard.got is not None:
        return guard.expected, guard.got
    if guard.kind == "alias" and guard.expected is not None and guard.expected.startswith("is "):
        return guard.expected, guard.expected.replace("is ", "is not ", 1)
    if guard.kind == "custom":
        return guard.expected, custom_guards.current_value(guard.source)
    if guard.kind == "length":
        return guard.expected, safe_read.length(guard.source, locals, globals)
    if guard.kind == "keys":
        before = facts.values.keys.get(guard.source, ())  # torch's message has only one key
        return safe_read.joined_keys(before) or guard.expected, safe_read.keys(guard.source, locals, globals)
    if guard.kind == "shape":
        return guard.expected, safe_read.dimension(guard.source, locals, globals)
    if guard.kind == "type":
        return guard.expected or facts.values.types.get(guard.source), safe_read.type_name(guard.source, locals, globals)
    expected = safe_read.shortened(guard.expected) if guard.expected is not None else None
    return expected, safe_read.describe(guard.source, locals, globals)


def _identities(guard: ParsedGuard, facts: EntryFacts, got: str | None) -> tuple[str | None, str | None]:
    """Return descriptions of the expected and the actual object of an identity guard; `got` describes the actual object.

    torch keeps only the type of the expected object; its description was recorded in `facts` when the entry was compiled.
    """
    expected = facts.values.objects.get(guard.source) or facts.values.objects.get(f"{guard.source}.__code__")
    if expected is None:
        return guard.expected, got
    return expected, f"another {got}" if got == expected else got


def _changed_state(fields: str, facts: EntryFacts) -> tuple[str | None, str | None]:
    """Return the compile-time and the current value, as text, of the parts of torch's global state named in `fields`.

    torch's message does not contain these values.
    """

    def text(state: Mapping[str, str]) -> str | None:
        values = [f"{field} {state[field]}" for field in fields.split() if field in state]
        return ", ".join(values) or None

    return text(facts.state), text(global_state())


def _location(guard: ParsedGuard, requesters: tuple[Location, ...], call_site: Location | None) -> Location | None:
    if guard.kind in _AMBIENT:
        return call_site
    in_message = _location_in_message(guard, requesters, call_site)
    if guard.kind == "shape" and in_message is not None:
        return in_message  # the branch that created the guard; the requesters only used the tensor
    if guard.kind == "keys":
        return next((line for line in requesters if _has_key(line, guard)), requesters[0] if requesters else in_message)
    return requesters[0] if requesters else in_message


def _has_key(line: Location, guard: ParsedGuard) -> bool:
    """Return whether the code at a line contains the key that is new or missing in the dict of a failed guard."""
    keys = [(value or "").removeprefix("no ") for value in (guard.expected, guard.got)]
    return any(key and key in code_at(line).replace('"', "'") for key in keys)


def _location_in_message(guard: ParsedGuard, requesters: tuple[Location, ...], call_site: Location | None) -> Location | None:
    """Return the line that torch's message names; a shortened file path is completed from `requesters` or `call_site`."""
    if guard.line is None:
        return None
    path, line, function = guard.line
    files = [location.file for location in (*requesters, *((call_site, call_site.own) if call_site is not None else ()))]
    file = path if path.startswith(("/", "<")) else next((file for file in files if file.endswith(path)), None)
    return user_location((RawFrame(file, line, function),), call_site) if file is not None else None
