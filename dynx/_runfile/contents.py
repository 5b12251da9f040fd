"""The lines of a run file: JSON objects, namely a header, the records in order, an end, and a checksum of these lines."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
