"""Records that form a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self


class Tree:
    """A node with nodes of its own type in `children`."""

    __slots__ = ()

    children: Sequence[Self]

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Self]]:
        """Yield this node and its descendants, parents first, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)
