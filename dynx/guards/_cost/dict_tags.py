"""Apply torch's dict tags to a callable: torch skips the guards of modules whose dictionaries have not changed."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from dynx._handle import Handle
from dynx._torch.cache import dict_tags, eviction
from dynx._torch.compilation.wrappers import is_shared
from dynx.guards._cache.owner import CacheOwner, on_compiled


class Marking(Handle):
    """Handle that applies dict tags to a callable: torch skips the guards of modules whose dictionaries have not changed.

    Existing and new cache entries get dict tags, which torch cannot turn off: `remove()` resets the function, which compiles
    again at its next call. Where several callables share the code object of a torch wrapper, `remove()` evicts only the entries
    with dict tags, which then count towards the recompile limit until `guards.reset`.
    """

    def __init__(self, owner: CacheOwner) -> None:
        self._owner = owner
        self._marked: WeakSet[Any] = WeakSet()  # guard managers
        for entry in owner.entries():
            self._mark(entry.compile_id, entry.guards)
        self._subscription = on_compiled(owner, self._mark, what="dict tags")

    def _mark(self, compile_id: str, guards: Any) -> None:
        dict_tags.mark(guards)
        self._marked.add(guards)

    def remove(self) -> None:
        """Turn off dict tags by removing the cache entries that have them.

        If it raises UsageError, as `guards.reset` does, these entries stay, with their dict tags.
        """
        self._subscription.remove()
        marked = [entry for entry in self._owner.entries() if entry.guards in self._marked]
        for code in {id(entry.code): entry.code for entry in marked}.values():
            if not is_shared(code):
                eviction.reset([code], "Marking.remove")  # also resets the count of recompiles
        for entry in marked:
            if is_shared(entry.code):
                eviction.invalidate(entry.guards, "its dict tags were removed by dynx.guards", "Marking.remove")
        self._marked.clear()
