"""Lines of a run file with a kind of record that only a newer dynx has: kept as bytes, and parsed on access."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, overload


class UnknownLines(Sequence[Mapping[str, Any]]):
    """A sequence of JSON objects that takes little more memory than the lines from which they are parsed.

    The sequence equals any other sequence of equal objects, such as a tuple.
    """

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = array("Q")

    def append(self, line: bytes) -> None:
        """Add a line of the file, which must contain a JSON object."""
        self._text += line
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Mapping[str, Any], ...]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | tuple[Mapping[str, Any], ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]  # raises IndexError
        begin = self._ends[number - 1] if number else 0
        data: dict[str, Any] = json.loads(self._text[begin : self._ends[number]])
        return {"type": data.pop("type", None), **data}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # unhashable, as a list is

    def __repr__(self) -> str:
        return f"<{len(self)} lines of a newer dynx>"
