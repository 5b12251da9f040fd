"""`Record`: the base class of all records; and mixins for records of a compilation and for nodes of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

IN_PROCESS: Mapping[str, bool] = MappingProxyType({"in_process": True})  # metadata of a field that is not saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Plain, frozen data that outlives the program objects it describes.

    `extra` keeps fields that a newer dynx wrote to a file and that this version does not know, so that saving the record again
    loses nothing.
    """

    extra: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)


class OfCompile:
    """A mixin for records of one compilation: `id` is its compile id, `generation` counts `torch._dynamo.reset()` calls."""

    __slots__ = ()

    generation: int
    id: str

    @property
    def key(self) -> tuple[int, str]:
        """Generation and compile id, unique for a compilation in a run; each `torch._dynamo.reset()` begins a generation."""
        return self.generation, self.id


class Tree:
    """A tree node whose `children` are nodes of the same class."""

    __slots__ = ()

    children: Sequence[Self]

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Self]]:
        """Yield this node and its descendants, parents first, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


def frame_id(compile_id: str) -> str:
    """Return the id of the frame that was compiled: "0" of "0/1", and of "!2/0/1" of the captured backward pass "!2"."""
    return compile_id.rpartition("/")[0].rpartition("/")[2]
