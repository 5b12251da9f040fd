"""Versions that torch asks before all others, whatever the backend.

Torch: the entries that precompiled packages load (`_load_precompile_entry`), alike in 2.11, 2.13 and 2.15. Of each it tells the
guards alone, so what else is known of a pinned one is kept here; those of packages stay unknown.
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


class _Known(NamedTuple):
    entry: RawEntry  # without its code and guards, which would keep themselves alive
    alive: tuple[Any, ...]  # objects that the guards compare by identity: another could get their address


_known: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()  # by guards


def pinned_of(code: CodeType) -> list[RawEntry]:
    """List what is pinned of a code object, in the order in which torch asks."""
    if not _known:
        return []
    known = [(guards, _known.get(guards)) for guards in _managers(code)]
    return [each.entry._replace(code=code, guards=guards) for guards, each in known if each is not None]


def is_precompiled(code: CodeType) -> bool:
    """Tell whether torch loaded versions of a code object from a package, of which nothing can be told."""
    managers = _managers(code)
    return bool(managers) and len(managers) > len(pinned_of(code))


def _managers(code: CodeType) -> list[Any]:
    return [each.guard_manager for each in _entries()(code)]


@cache  # would_recompile asks every time
def _entries() -> Any:
    from torch._C._dynamo.eval_frame import _debug_get_precompile_entries

    return _debug_get_precompile_entries


def pin(entry: RawEntry) -> None:
    """Have torch ask a version first. Its other versions are forgotten: that gives room under the limit of recompiles."""
    require("pin", "pinned", "unpin", "reset_code", "compile_lock")
    from torch._dynamo.eval_frame import reset_code

    alive = tuple(obj for ref in entry.guards.id_matched_objs.values() if (obj := ref()) is not None)
    bare: Any = entry._replace(code=None, guards=None, is_pinned=True)  # type: ignore[arg-type]

    def put_first() -> None:
        others = pinned_of(entry.code)  # a reset takes them away
        reset_code(entry.code)
        _load(entry.code, (*others, entry))
        _known[entry.guards] = _Known(bare, alive)

    when_quiet(put_first, "guards.pin")


def unpin(code: CodeType, guards: Any) -> None:
    from torch._C._dynamo.eval_frame import _reset_precompile_entries

    def take_out() -> None:
        others = [each for each in pinned_of(code) if each.guards is not guards]
        _reset_precompile_entries(code)
        _load(code, others)
        _known.pop(guards, None)

    if any(each.guards is guards for each in pinned_of(code)):
        when_quiet(take_out, "guards.pin")


def _load(code: CodeType, entries: Iterable[RawEntry]) -> None:
    from torch._C._dynamo.eval_frame import _load_precompile_entry

    for each in entries:
        _load_precompile_entry(code, each.guards, each.compiled)
