"""`Tree`: a mixin for records whose `children` are of the same class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self


class Tree:
    """A tree node whose `children` are nodes of the same class."""

    __slots__ = ()

    children: Sequence[Self]

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Self]]:
        """Yield this node and its descendants, parents first, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)
