"""The guards of a cache entry as records: what torch's own text of each says."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType

from dynx._torch.cache.guard_tree import RawNode
from dynx._torch.tracing.stack import RawFrame, StackParts
from dynx._trace.guard_requests import lines_for, short_source
from dynx._trace.guard_text import parse_guard
from dynx._trace.user_location import owner_of_file, user_location
from dynx.records import GuardInfo, GuardNode, Location

_HINT = re.compile(r" \(HINT: type .*\)$")


def node_of(raw: RawNode, code: CodeType, requests: Mapping[str, list[StackParts]] | None) -> GuardNode:
    """Make the record of a guarded value and those below it; `requests` are known where dynx watched the compilation."""
    return GuardNode(
        raw.source,
        raw.type,
        raw.access,
        tuple(info_of(each.type, text, code, requests) for each in raw.guards for text in each.texts),
        tuple(node_of(each, code, requests) for each in raw.children),
    )


def info_of(kind: str, text: str, code: CodeType, requests: Mapping[str, list[StackParts]] | None) -> GuardInfo:
    """Read one guard: torch's name of its kind, and what it says."""
    return read_guard(kind, text, code, lambda source: lines_for(source, requests, None) if requests else ())


def read_guard(
    kind: str, text: str, code: CodeType, requesters_of: Callable[[str], tuple[Location, ...]], longest: int | None = None
) -> GuardInfo:
    """Read one guard; `requesters_of` returns the lines that asked for a source, `longest` bounds each text of the record."""
    guard = parse_guard(short_source(_HINT.sub("", text)))
    requesters = requesters_of(guard.source)
    named_by_torch = _location(*guard.location, code) if guard.location is not None and not requesters else None
    return GuardInfo(
        guard.kind,
        _cut(guard.source, longest),
        _cut(guard.expected, longest) if guard.expected is not None else None,
        requesters[0] if requesters else named_by_torch,
        requesters,
        kind,
        _cut(guard.text, longest),
    )


def _cut(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else f"{text[:longest]}…"


def _location(shortened: str, line: int, function: str, code: CodeType) -> Location | None:
    """Give the line that torch names; it shortens the path, whose end must be that of a file of the program."""
    if code.co_filename.endswith(shortened):
        file: str | None = code.co_filename
    else:
        file = _file_ending(shortened, len(sys.modules))
    if file is None:
        return None
    found = user_location((RawFrame(file, line, function),))
    return found or Location(file, line, function, library=owner_of_file(file)[1] or "torch")


@cache
def _file_ending(shortened: str, modules: int) -> str | None:
    """Find the one loaded file whose path ends so; `modules` makes a later import a new question."""
    files = {file for each in tuple(sys.modules.values()) if isinstance(file := getattr(each, "__file__", None), str)}
    known = [file for file in files if file.endswith(shortened)]
    return known[0] if len(known) == 1 else None
