"""Records that hold others of their kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self


class Tree:
    """Has others of its kind in `children`."""

    __slots__ = ()

    children: Sequence[Self]

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Self]]:
        """Give this node and those below it, outer ones first, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)
