"""`Contents`: the items of a container that the user passed in `state=` of `dynx.check`.

The container keeps its identity; while `World.entered()` is active, its items are replaced by copies.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

from dynx.effects._world.layout import built_in_base


@dataclass(frozen=True, eq=False)
class Contents:
    """The items of a list, set, deque or dict, with methods to read and replace them."""

    path: str
    owner: Any

    @property
    def key(self) -> tuple[int, str]:
        return id(self.owner), ""

    def get(self) -> Any:
        """Return a new list, set or OrderedDict of the items; the items themselves are not copied."""
        base: Any = built_in_base(type(self.owner))
        if issubclass(base, dict):
            return OrderedDict(base.items(self.owner))
        items = list(base.__iter__(self.owner))
        return set(items) if base is set else items

    def set(self, value: Any) -> None:
        """Replace the items of the container by those of `value`."""
        base: Any = built_in_base(type(self.owner))
        base.clear(self.owner)
        if base is list or base is deque:
            base.extend(self.owner, value)
        else:
            base.update(self.owner, value)
