"""Have torch skip the guards of modules whose dictionaries did not change."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any, Self
from weakref import WeakSet

from dynx._torch import cache_entries, dict_tags
from dynx.guards._compiled import on_compiled


class Marking:
    """The setting "dict tags" of a function, for what is compiled of it and what will be; `remove()` ends it.

    torch cannot take a mark back: `remove()` forgets the versions that have one, which compile again at their next call.
    """

    def __init__(self, codes: Sequence[CodeType]) -> None:
        self._marked: WeakSet[Any] = WeakSet()  # guard managers
        for each in cache_entries.with_rests(list(codes)):
            self._mark(each.compile_id, each.guards)
        self._subscription = on_compiled(codes, self._mark, what="dict tags")

    def _mark(self, compile_id: str, guards: Any) -> None:
        dict_tags.mark(guards)
        self._marked.add(guards)

    def remove(self) -> None:
        self._subscription.remove()
        for each in tuple(self._marked):
            cache_entries.invalidate(each, "its dict tags were taken back by dynx.guards")
        self._marked.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
