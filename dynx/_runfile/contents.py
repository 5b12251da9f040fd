"""The lines of a run file: JSON objects, namely a header, the records in order, an end, and a checksum of these lines."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

from dynx.records.codec import to_data
from dynx.records.record import Record

SCHEMA = 1
CHECKSUM = "crc32"  # the type of the last line


class RunFile(NamedTuple):
    """The contents of a run file: the fields of a `Run`."""

    events: tuple[Record, ...]
    header: Mapping[str, Any]
    end: Mapping[str, Any]  # empty when the process was killed
    problems: tuple[str, ...] = ()  # the lines that could not be read, and why; not written
    unknown: Sequence[Mapping[str, Any]] = ()  # lines of a newer dynx


def write(contents: RunFile, path: Path) -> None:
    """Write a whole run file. Raises OSError when the file cannot be written."""
    checksum = 0
    with path.open("wb") as file:
        for data in _lines(contents):
            line = json.dumps(data, default=str).encode() + b"\n"
            checksum = checksum_of(line, checksum)
            file.write(line)
        if contents.end:
            file.write(json.dumps({"type": CHECKSUM, "value": checksum}).encode() + b"\n")


def header_line(header: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "header", "dynx_run": SCHEMA, "has_checksum": True, **header}


def checksum_of(line: bytes, before: int) -> int:
    """Return the checksum of all lines up to `line`, given the checksum `before` of the lines before it."""
    return zlib.crc32(line.rstrip(b"\r\n"), before)  # a file transfer may change line ends


def _lines(contents: RunFile) -> Iterator[Mapping[str, Any]]:
    yield header_line(contents.header)
    for record in contents.events:
        yield to_data(record)
    yield from contents.unknown
    if contents.end:
        yield {"type": "end", **contents.end}


class UnknownLines(Sequence[Mapping[str, Any]]):
    """The lines of a run file whose kind of record this version of dynx does not know, as a sequence of JSON objects.

    The lines are stored as bytes and parsed on access. The sequence equals any other sequence of equal objects.
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
