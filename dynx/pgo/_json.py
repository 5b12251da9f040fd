"""Write and read profiles as JSON. A file with an invalid value is rejected: skipping the value would change what is dynamic.

Sizes are numbers, `"dynamic"`, or null if unknown; the output is sorted, so that equal profiles give equal files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dynx.pgo._pickled import MAX_BYTES, InvalidProfile
from dynx.records.codec import visible
from dynx.records.profile import (
    DYNAMIC,
    NOT_FINITE,
    Atom,
    Atoms,
    FrameProfile,
    Graph,
    GraphSize,
    ProfileData,
    Seen,
    SourceProfile,
)

SCHEMA = 1
_MAX_DIMS = 64  # of a tensor in torch
_MIN, _MAX = -(2**63), 2**63 - 1  # range of an integer
_MAX_COUNT = 2**31  # line numbers and dims are smaller
_SHORT = 100  # characters of a usual compile id
_MAX_TEXT = 10_000  # characters of a path or source
_HEXADECIMAL = re.compile(r"-?[0-9a-f]{1,16}")  # torch's own hash of a closure may be negative
_FRAME = ("file", "file_hash", "name", "line", "closure", "qualname", "source_hash", "offset", "graphs", "sources")


def write(profile: ProfileData) -> str:
    """Return a profile as JSON with one source per line."""
    head = {"dynx_profile": SCHEMA, **profile.extra, "torch": list(profile.torch), "runs": dict(sorted(profile.runs.items()))}
    lines = json.dumps(head, indent=1, allow_nan=False)[:-2]
    frames = ",\n".join(map(_frame_text, profile.frames))
    return f'{lines},\n "frames": [\n{frames}\n ]\n}}\n'


def _frame_text(frame: FrameProfile) -> str:
    fields = {name: getattr(frame, name) for name in _FRAME[:-2]} | {"offset": frame.offset or None}
    fields["closure"] = None if frame.closure is None else f"{frame.closure:x}"
    head = json.dumps({**frame.extra, **{name: value for name, value in fields.items() if value is not None}})[:-1]
    sources = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(_source_data(source), allow_nan=False)}"
        for name, source in sorted(frame.sources.items())
    )
    graphs = ",\n".join(f"    {json.dumps(_graph_data(graph), allow_nan=False)}" for graph in frame.graphs)
    listed = f', "graphs": [\n{graphs}]' if graphs else ""
    return f'  {head}{listed}, "sources": {{\n{sources}}}}}'


def _graph_data(graph: Graph) -> dict[str, list[list[Any]]]:
    """Return a dict from source to lists: `[dim, value]` for a static size, `[dim, lower bound, upper bound]` for a symbol."""
    data: dict[str, list[list[Any]]] = {}
    for source, dim, marked, low, high in graph:
        data.setdefault(source, []).append([dim, low, high] if marked else [dim, low])
    return data


def _source_data(source: SourceProfile) -> dict[str, Any]:
    fields = {**source._asdict(), "seen": source.seen or None}
    return {name: value for name, value in fields.items() if value is not None}


def read(data: bytes) -> ProfileData:
    """Return the profile in a JSON text. Raises InvalidProfile for anything else."""
    if len(data) > MAX_BYTES:
        raise InvalidProfile(f"the profile is too large: dynx reads at most {MAX_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidProfile(f"the file is not JSON: {error}") from None
    if not isinstance(document, dict) or "dynx_profile" not in document:
        raise InvalidProfile("the JSON lacks the key 'dynx_profile', which every profile of dynx has")
    if document["dynx_profile"] != SCHEMA:
        raise InvalidProfile(f"the file has format version {document['dynx_profile']!r:.40}; this dynx reads version {SCHEMA}")
    with _within("frames"):
        listed = _list(document.get("frames"), "'frames'")
    frames = [_frame(frame, index) for index, frame in enumerate(listed)]
    with _within("runs"):
        runs = {_text(run, "a run"): _text(text, "a run") for run, text in _object(document.get("runs", {}), "'runs'").items()}
    with _within("torch"):
        versions = tuple([_text(version, "a version") for version in _list(document.get("torch", []), "'torch'")])
    extra = {visible(key): value for key, value in document.items() if key not in ("dynx_profile", "frames", "runs", "torch")}
    return ProfileData(tuple(frames), runs, versions, extra=extra)


@contextmanager
def _within(*path: object) -> Iterator[None]:
    """Prepend `path`, the position in the JSON document, to the message of an InvalidProfile raised in the `with` block."""
    try:
        yield
    except InvalidProfile as error:
        raise InvalidProfile(f"in {'.'.join(map(str, path))}: {error}") from None


def _frame(data: Any, index: int) -> FrameProfile:
    with _within(f"frames[{index}]"):
        _object(data, "the item")
        fields: dict[str, Any] = {name: _text(data.get(name), f"{name!r}") for name in ("file", "file_hash", "name")}
        fields |= {name: _text(data[name], f"{name!r}") for name in ("qualname", "source_hash") if name in data}
        fields |= {"line": _count(data.get("line"), "'line'"), "closure": _closure(data.get("closure"))}
        fields["offset"] = _count(data.get("offset", 0), "'offset'")
        fields["graphs"] = tuple([_graph(graph) for graph in _list(data.get("graphs", []), "'graphs'")])
        sources = _object(data.get("sources", {}), "'sources'")
        extra = {visible(key): value for key, value in data.items() if key not in _FRAME}
        checked = {_text(name, "a source"): _source(name, sources[name]) for name in sources}
        return FrameProfile(**fields, sources=checked, extra=extra)


def _closure(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and _HEXADECIMAL.fullmatch(value):
        return int(value, 16)
    raise InvalidProfile(f"'closure' must be a lowercase hexadecimal string, up to 16 digits; in this file it is {value!r:.40}")


def _source(name: str, data: Any) -> SourceProfile:
    try:
        get = _object(data, "its value").get
        size = _sizes(get("size"), ())
        stride = _sizes(get("stride"), _PRODUCTS[: len(size)] if isinstance(size, tuple) else _PRODUCTS)
        if isinstance(size, tuple) and isinstance(stride, tuple) and len(size) != len(stride):
            raise InvalidProfile(f"'size' has {len(size)} items, but 'stride' has {len(stride)}")
        seen = tuple([_seen(item) for item in _list(get("seen", []), "'seen'")])
        return SourceProfile(_number(get("scalar")), size, stride, seen)
    except InvalidProfile as error:
        raise InvalidProfile(f"in source {name:.80}: {error}") from None


def _graph(data: Any) -> Graph:
    sizes = [(name, size) for name, items in _object(data, "a graph").items() for size in _list(items, "a list of sizes")]
    return tuple([_graph_size(_text(name, "a source"), size) for name, size in sizes])


def _graph_size(source: str, data: Any) -> GraphSize:
    if len(_list(data, "a size in 'graphs'")) not in (2, 3):
        raise InvalidProfile(f"a size in 'graphs' must be [dim, value] or [dim, low, high]; in this file it is {data!r:.40}")
    dim, values = data[0], data[1:]
    if dim is not None:
        _count(dim, "the dim of a size in 'graphs'")
    for value in values:
        if (value is None and len(values) == 2) or (dim is not None and type(value) is int and 0 <= value <= _MAX):
            continue
        if dim is not None or _number(value) in (None, DYNAMIC):
            raise InvalidProfile(f"a size in 'graphs' must be an int >= 0 (a number if dim is null); here it is {value!r:.40}")
    return GraphSize(source, dim, len(values) == 2, values[0], values[-1])


def _seen(data: Any) -> Seen:
    if type(data) is not list or len(data) != 4:
        raise InvalidProfile(f"an item of 'seen' must be [dim, value, run, compile id]; in this file it is {data!r:.40}")
    dim, value, run, compile_id = data
    if dim is not None:
        if type(dim) is not int or type(value) is not int or not (0 <= dim < _MAX_COUNT and 0 <= value <= _MAX):
            raise InvalidProfile(f"dim and size in 'seen' must be non-negative ints; in this file they are {data[:2]!r:.40}")
    elif (value := _number(value)) is None or value == DYNAMIC:
        raise InvalidProfile(f"an item of 'seen' whose dim is null must have a number as value; in this file it is {value!r}")
    # the checks of `_text`, inlined for speed: compile ids are a third of all texts
    if type(compile_id) is not str or len(compile_id) > _SHORT or not compile_id.isprintable():
        compile_id = _text(compile_id, "a compile id in 'seen'")
    return Seen(dim, value, _text(run, "a run in 'seen'"), compile_id)


def _sizes(value: Any, texts: tuple[str, ...]) -> Atoms:
    """Check sizes or strides read from JSON and return them; each is a number, null, `"dynamic"` or one of `texts`."""
    if value is None or value == DYNAMIC:
        return DYNAMIC if value else None
    sizes = _list(value, "'size' or 'stride'")
    if len(sizes) > _MAX_DIMS:
        raise InvalidProfile(f"'size' or 'stride' has {len(sizes)} items, but a tensor has at most {_MAX_DIMS} dims")
    return tuple([size if type(size) is int and 0 <= size <= _MAX else _no_number(size, texts) for size in sizes])


def _no_number(value: Any, texts: tuple[str, ...]) -> str | None:
    if value is None or value == DYNAMIC or (isinstance(value, str) and value in texts):
        return value
    raise InvalidProfile(f"'size' or 'stride' has {value!r:.40}: not an int >= 0, null, 'dynamic' or, in 'stride', a product")


def _number(value: Any) -> Atom:
    """Return `value` if it is a number, None, `"dynamic"`, `"nan"`, `"inf"` or `"-inf"`; else raise InvalidProfile."""
    if (type(value) is int and _MIN <= value <= _MAX) or (type(value) is float and math.isfinite(value)):
        return value
    if value is None or (isinstance(value, str) and value in (DYNAMIC, *NOT_FINITE)):
        return value
    raise InvalidProfile(f"the value of an argument must be a number; in this file it is {value!r:.40}")


_PRODUCTS = tuple(f"size({dim})*stride({dim})" for dim in range(_MAX_DIMS))


def _text(value: Any, key: str) -> str:
    if type(value) is str and len(value) <= _MAX_TEXT and value.isprintable():
        return value
    if not isinstance(value, str):
        raise InvalidProfile(f"{key} must be a string; in this file it is {value!r:.40} (None if missing)")
    if len(value) > _MAX_TEXT:
        raise InvalidProfile(f"{key} has {len(value)} characters; dynx reads at most {_MAX_TEXT}")
    return visible(value)


def _count(value: Any, key: str) -> int:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise InvalidProfile(f"{key} must be an int from 0 to {_MAX_COUNT - 1}; here it is {value!r:.40} (None if missing)")
    return value


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidProfile(f"{key} must be a list; in this file it is {value!r:.40} (None if missing)")
    return value


def _object(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidProfile(f"{key} must be a JSON object; in this file it is {value!r:.40}")
    return value
