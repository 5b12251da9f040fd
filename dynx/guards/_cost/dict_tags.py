"""Have torch skip the guards of modules whose dictionaries did not change."""

from __future__ import annotations

from typing import Any, Self
from weakref import WeakSet

from dynx._torch.cache import dict_tags, eviction
from dynx._torch.compilation.wrappers import is_shared
from dynx.guards._cache.on_compile import on_compiled
from dynx.guards._cache.owner import CacheOwner


class Marking:
    """The setting "dict tags" of a function, for what is compiled of it and what will be; `remove()` ends it.

    torch cannot take a mark back: `remove()` forgets the versions of the function, which compile again at their next call. Of
    code that several share, because torch wraps them, it evicts those that are marked: they count towards the limit.
    """

    def __init__(self, owner: CacheOwner) -> None:
        self._owner = owner
        self._marked: WeakSet[Any] = WeakSet()  # guard managers
        for each in owner.entries():
            self._mark(each.compile_id, each.guards)
        self._subscription = on_compiled(owner, self._mark, what="dict tags")

    def _mark(self, compile_id: str, guards: Any) -> None:
        dict_tags.mark(guards)
        self._marked.add(guards)

    def remove(self) -> None:
        """End it. Raises UsageError as `guards.reset` does; the versions are marked until then."""
        self._subscription.remove()
        marked = [each for each in self._owner.entries() if each.guards in self._marked]
        for code in {id(each.code): each.code for each in marked}.values():
            if not is_shared(code):
                eviction.reset([code], "Marking.remove")  # gives back the room under the limit of recompiles
        for each in marked:
            if is_shared(each.code):
                eviction.invalidate(each.guards, "its dict tags were taken back by dynx.guards", "Marking.remove")
        self._marked.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
