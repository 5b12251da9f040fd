"""Build records of the guards of a cache entry by parsing the text that torch has for each guard."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType

from dynx._reading.user_location import owner_of_file, user_location
from dynx._torch.cache.guard_tree import RawNode
from dynx._torch.tracing.stack import RawFrame, StackParts
from dynx._trace.guards.requests import lines_for, short_source
from dynx._trace.guards.text import GuardLine, parse_guard
from dynx.records import GuardInfo, GuardNode, Location

_HINT = re.compile(r" \(HINT: type .*\)$")


def node_of(raw: RawNode, code: CodeType, requests: Mapping[str, list[StackParts]] | None) -> GuardNode:
    """Convert a node of torch's guard tree, with its children, to a record.

    `requests` maps a guarded value, such as `x.size()[0]`, to the user stacks from which Dynamo requested guards on it. It is
    None if no listener observed the compilation.
    """
    return GuardNode(
        raw.source,
        raw.type,
        raw.access,
        tuple(info_of(guard.type, text, code, requests) for guard in raw.guards for text in guard.texts),
        tuple(node_of(child, code, requests) for child in raw.children),
    )


def info_of(kind: str, text: str, code: CodeType, requests: Mapping[str, list[StackParts]] | None) -> GuardInfo:
    """Build the record of one guard of `code`. `kind` is its type, such as `TENSOR_MATCH`; `node_of` explains `requests`."""
    return read_guard(kind, text, code, lambda source: lines_for(source, requests, None) if requests else ())


def read_guard(
    kind: str, text: str, code: CodeType, requesters_of: Callable[[str], tuple[Location, ...]], max_length: int | None = None
) -> GuardInfo:
    """Build the record of one guard of `code` from its type, such as `TENSOR_MATCH`, and torch's text of the guard.

    `requesters_of(source)` returns the lines that requested guards on a value. Texts are cut to `max_length` characters.
    """
    guard = parse_guard(short_source(_HINT.sub("", text)))
    requesters = requesters_of(guard.source)
    in_text = _location(guard.line, code) if guard.line is not None and not requesters else None
    return GuardInfo(
        guard.kind,
        _cut(guard.source, max_length),
        _cut(guard.expected, max_length) if guard.expected is not None else None,
        requesters[0] if requesters else in_text,
        requesters,
        kind,
        _cut(guard.text, max_length),
    )


def _cut(text: str, max_length: int | None) -> str:
    return text if max_length is None or len(text) <= max_length else f"{text[:max_length]}…"


def _location(line: GuardLine, code: CodeType) -> Location | None:
    """Return the line named in a guard's text, with the full path of its file, taken from `code` or from the loaded modules."""
    file: str | None = code.co_filename
    if not code.co_filename.endswith(line.file):
        file = _loaded_file(line.file, len(sys.modules))
    if file is None:
        return None
    location = user_location((RawFrame(file, line.line, line.function),))
    return location or Location(file, line.line, line.function, library=owner_of_file(file).library or "torch")


@cache
def _loaded_file(ending: str, modules: int) -> str | None:
    """Return the only file of a loaded module whose path ends with `ending`; None if no file or several files match.

    `modules`, the number of loaded modules, is only a cache key: a later import causes a new search.
    """
    files = {file for module in tuple(sys.modules.values()) if isinstance(file := getattr(module, "__file__", None), str)}
    matching = [file for file in files if file.endswith(ending)]
    return matching[0] if len(matching) == 1 else None
