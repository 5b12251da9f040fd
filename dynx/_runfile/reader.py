"""Read run files, even damaged ones and those of a newer dynx; refuse files that are not run files."""

from __future__ import annotations

import json
import math
import stat
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dynx._runfile.contents import CHECKSUM, SCHEMA, RunFile, UnknownLines, checksum_of
from dynx.errors import BadRunFile, DynxWarning
from dynx.records.codec import NAMES, InvalidRecord, from_data, visible
from dynx.records.record import Record

_MAX_LINE = 8 * 2**20  # bytes: a record is a few kilobytes, a longer line was not written by dynx
_MAX_DEPTH = 100  # of nested lists and objects; dynx nests fewer than 20
_MAX_STORED = 10_000  # damaged lines that are listed
_MAX_PROBLEMS = 20  # warnings about damaged lines; further lines are only counted


def read(path: Path) -> RunFile:
    """Read a run file, and warn about lines that cannot be read; see `Run.load`."""
    header: dict[str, Any] = {}
    end: dict[str, Any] = {}
    events: list[Record] = []
    unknown = UnknownLines()
    problems = _Problems()
    checksum, expected = 0, None
    shown = visible(str(path))
    _refuse_special(path)
    with path.open("rb") as file:
        for number, line in _numbered(file):
            data = _parse(line)
            before, checksum = checksum, checksum_of(line, checksum)
            if number == 1 and not (isinstance(data, dict) and "dynx_run" in data):
                raise BadRunFile(f"{shown} is not a dynx run file: it has no header\n  to write a run file: dynx run script.py")
            if isinstance(data, str):
                problems.append(f"line {number}: {data}")
                continue
            kind = data.pop("type", None)
            if kind == "header":
                header = _clean(data)
            elif kind == "end":
                end = _clean(data)
            elif kind == CHECKSUM:
                expected = data.get("value")
                if expected != before and not problems:
                    problems.append(f"the lines before line {number} were changed after they were written")
            elif isinstance(kind, str) and kind in NAMES:
                try:
                    if end:
                        raise InvalidRecord("the record comes after the line that ends the run")
                    events.append(from_data(NAMES[kind], data))
                except (InvalidRecord, RecursionError) as error:
                    problems.append(f"line {number}: {error or 'nested too deeply'}")
            else:
                unknown.append(line)
    if not header:
        raise BadRunFile(f"the run file {shown} is empty\n  to write a run file: dynx run script.py")
    if header.pop("has_checksum", False) and end and expected is None and not problems:
        problems.append("its last line, with the checksum, is missing")
    if (schema := header.pop("dynx_run", None)) != SCHEMA:
        problems.append(f"its format is version {schema!r}, this dynx knows {SCHEMA}: upgrade dynx")
    problems.add_count()
    _warn_of(problems, shown)
    return RunFile(tuple(events), header, end, tuple(problems), unknown)


class _Problems(list[str]):
    """A list of texts about lines that cannot be read: at most ten thousand; further lines are only counted."""

    more = 0

    def append(self, text: str) -> None:
        if len(self) < _MAX_STORED:
            super().append(text)
        else:
            self.more += 1

    def add_count(self) -> None:
        if self.more:
            super().append(f"{self.more} more lines cannot be read")


def _refuse_special(path: Path) -> None:
    """Raise BadRunFile for a device, a socket or a named pipe, since reading it may never end; `<(command)` is allowed."""
    mode = path.stat().st_mode
    is_opened = str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode) or (stat.S_ISFIFO(mode) and not is_opened):
        raise BadRunFile(f"{visible(str(path))} is a device or a pipe, not a run file\n  pass the path of a file")


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        whole = line
        while not whole.endswith(b"\n") and (whole := file.readline(_MAX_LINE)):
            line = b""  # too long: drop it, but count it as one line
        yield number, line


def _parse(line: bytes) -> dict[str, Any] | str:
    """Return the JSON object in a line, or a text that says why the line has none."""
    if not line:
        return "longer than 8 MiB"
    if _depth(line) > _MAX_DEPTH:
        return "nested too deeply"
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        cut = "" if line.endswith(b"\n") else "; the file ends here, the process may have been killed"
        return f"not JSON ({type(error).__name__}){cut}"
    return data if isinstance(data, dict) else "not a JSON object"


def _depth(line: bytes) -> int:
    """Estimate the nesting depth of JSON text from brackets, even in strings; 0 if at most `_MAX_DEPTH` brackets open."""
    if line.count(b"[") + line.count(b"{") <= _MAX_DEPTH:
        return 0
    depth = deepest = 0
    for character in line:
        if character in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in b"]}":
            depth -= 1
    return deepest


def _clean(data: Mapping[str, Any]) -> dict[str, Any]:
    return {visible(key): _visible(value) for key, value in data.items()}


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_visible(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON cannot store it
    return _clean(value) if isinstance(value, dict) else value


def _warn_of(problems: list[str], path: str) -> None:
    for problem in problems[:_MAX_PROBLEMS]:
        rest = "; this line is skipped, the others are read" if problem.startswith("line ") else ""
        warnings.warn(f"run file {path}, {problem}{rest}", DynxWarning, stacklevel=4)
    if len(problems) > _MAX_PROBLEMS:
        warnings.warn(f"{path}: {len(problems) - _MAX_PROBLEMS} more lines are damaged and skipped", DynxWarning, stacklevel=4)
