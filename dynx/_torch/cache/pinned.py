"""Pin cache entries: torch checks pinned entries before all others of a code object, whatever the backend.

Torch: the entries that precompiled packages load (`_load_precompile_entry`). Torch returns only the guards of such an entry, so
this module stores the other fields of pinned entries; it does not return entries of packages.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import CodeType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.quiescence import when_quiet
from dynx._torch.capabilities import require


class _Pinned(NamedTuple):
    entry: RawEntry  # without code and guards, which would keep the key of `_pinned` alive
    alive: tuple[Any, ...]  # objects that the guards compare by id(): a new object could get the same address


_pinned: WeakKeyDictionary[Any, _Pinned] = WeakKeyDictionary()  # by guards


def pinned_of(code: CodeType) -> list[RawEntry]:
    """Return the cache entries of a code object that `pin` put before all others, in the order in which torch checks them."""
    if not _pinned:
        return []
    pins = [(guards, _pinned.get(guards)) for guards in _managers(code)]
    return [pin.entry._replace(code=code, guards=guards) for guards, pin in pins if pin is not None]


def is_precompiled(code: CodeType) -> bool:
    """Return whether torch loaded cache entries of a code object from a precompiled package."""
    managers = _managers(code)
    return bool(managers) and len(managers) > len(pinned_of(code))


def _managers(code: CodeType) -> list[Any]:
    return [precompiled.guard_manager for precompiled in _list_function()(code)]


@cache  # would_recompile calls it every time
def _list_function() -> Any:
    from torch._C._dynamo.eval_frame import _debug_get_precompile_entries

    return _debug_get_precompile_entries


def pin(entry: RawEntry) -> None:
    """Make torch check this cache entry before all other entries of its code object, whatever the backend.

    Other entries of the code object that are not pinned are removed from the cache, so that they do not count towards the
    recompile limit.
    """
    require("pin", "pinned", "unpin", "reset_code", "compile_lock")
    from torch._dynamo.eval_frame import reset_code

    alive = tuple(obj for ref in entry.guards.id_matched_objs.values() if (obj := ref()) is not None)
    bare: Any = entry._replace(code=None, guards=None, is_pinned=True)  # type: ignore[arg-type]

    def move_to_front() -> None:
        others = pinned_of(entry.code)  # before the reset, which removes them
        reset_code(entry.code)
        _load(entry.code, (*others, entry))
        _pinned[entry.guards] = _Pinned(bare, alive)

    when_quiet(move_to_front, "guards.pin")


def unpin(code: CodeType, guards: Any) -> None:
    """Remove the pinned cache entry with this `GuardManagerWrapper` from the cache; do nothing if the entry is not pinned."""
    from torch._C._dynamo.eval_frame import _reset_precompile_entries

    def remove_entry() -> None:
        others = [entry for entry in pinned_of(code) if entry.guards is not guards]
        _reset_precompile_entries(code)
        _load(code, others)
        _pinned.pop(guards, None)

    if any(entry.guards is guards for entry in pinned_of(code)):
        when_quiet(remove_entry, "Pin.remove")


def _load(code: CodeType, entries: Iterable[RawEntry]) -> None:
    from torch._C._dynamo.eval_frame import _load_precompile_entry

    for entry in entries:
        _load_precompile_entry(code, entry.guards, entry.compiled)
