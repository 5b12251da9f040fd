"""`WatchedEntry`: a cache entry, what its code read in the trace, and the calls that ran it after a value had changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any
from weakref import ref

from dynx._torch.cache.guard_tree import add_last
from dynx._torch.unguarded.read import Read, Scope
from dynx.records.location import Location

_MOST_CALLS = 1000  # calls for which a changed value is read again


@dataclass(slots=True, eq=False)
class Stale:
    """A read whose value changed although the entry was run: the new value, and the number of these calls."""

    read: Read
    now: str
    seen: Location | None  # the call before which the change was noticed
    calls: int = 0


class WatchedEntry:
    """A cache entry with its reads. A guard is added to it when one of the values changes, not before.

    The guard holds for every call. torch evaluates it last, so that it sees the calls that run the entry.
    """

    def __init__(self, guards: Any, code: CodeType, globals: Mapping[str, Any], reads: tuple[Read, ...]) -> None:
        self.code, self.reads = code, reads
        self._guards = ref(guards)
        self._module = globals.get("__name__")
        self._changed: dict[int, tuple[Read, Location | None]] = {}
        self.stale: dict[int, Stale] = {}
        self._calls = 0
        self._is_armed = False

    @property
    def is_alive(self) -> bool:
        """Whether torch still has the entry."""
        return self._guards() is not None

    def look(self, locals: Mapping[str, Any] | None, where: Callable[[], Location | None]) -> None:
        """Read the values again; if one has changed, count the calls from now on.

        `locals` are of a call, if it is known; `where` returns its line.
        """
        scope = self._scope(locals) if locals is not None else None
        found: Location | None = None
        is_found = False
        for index, read in enumerate(self.reads):
            if index not in self._changed and read.is_changed(scope):
                found = where() if not is_found else found
                is_found = True
                self._changed[index] = read, found
        guards = self._guards()
        if is_found and not self._is_armed and guards is not None:
            add_last(guards, self._on_call, "dynx: counts calls after a change")
            self._is_armed = True

    def _scope(self, locals: Mapping[str, Any]) -> Scope:
        module = sys.modules.get(self._module) if isinstance(self._module, str) else None
        return Scope(locals, vars(module) if module is not None else {})

    def _on_call(self, locals: Any) -> bool:
        if self._calls < _MOST_CALLS:
            self._calls += 1
            try:
                self._count(self._scope(locals))
            except Exception:  # noqa: BLE001 - a guard that raises would change the program
                self._calls = _MOST_CALLS
        return True

    def _count(self, scope: Scope) -> None:
        for index, (read, seen) in self._changed.items():
            if read.is_changed(scope):
                stale = self.stale.get(index)
                if stale is None:
                    stale = self.stale[index] = Stale(read, read.probe.text(scope), seen)
                stale.calls += 1
