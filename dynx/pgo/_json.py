"""Write and read profiles as JSON. A file with one invalid value is rejected: with a part of it, other sizes would be dynamic.

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
    """Return a graph as a dict from source to lists `[dim, value]` for a static size, or `[dim, low, high]` for a symbol."""
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
        raise InvalidProfile(f"the profile has {len(data)} bytes, dynx reads at most {MAX_BYTES}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidProfile(f"the file is not JSON: {error}") from None
    if not isinstance(document, dict) or "dynx_profile" not in document:
        raise InvalidProfile("the JSON has no key 'dynx_profile'")
    if document["dynx_profile"] != SCHEMA:
        raise InvalidProfile(f"the file has schema {document['dynx_profile']!r:.40}; this dynx reads schema {SCHEMA}")
    with _within("frames"):
        listed = _list(document.get("frames"))
    frames = [_frame(frame, index) for index, frame in enumerate(listed)]
    with _within("runs"):
        runs = {_text(run): _text(text) for run, text in _object(document.get("runs", {})).items()}
    with _within("torch"):
        versions = tuple(map(_text, _list(document.get("torch", []))))
    extra = {visible(key): value for key, value in document.items() if key not in ("dynx_profile", "frames", "runs", "torch")}
    return ProfileData(tuple(frames), runs, versions, extra=extra)


@contextmanager
def _within(*path: object) -> Iterator[None]:
    """Prepend `path`, the position in the JSON document, to the message of an InvalidProfile."""
    try:
        yield
    except InvalidProfile as error:
        raise InvalidProfile(f"{'.'.join(map(str, path))}: {error}") from None


def _frame(data: Any, index: int) -> FrameProfile:
    with _within(f"frames[{index}]"):
        _object(data)
        fields: dict[str, Any] = {name: _text(data.get(name)) for name in ("file", "file_hash", "name")}
        fields |= {name: _text(data[name]) for name in ("qualname", "source_hash") if name in data}
        fields |= {"line": _count(data.get("line")), "closure": _closure(data.get("closure"))}
        fields["offset"] = _count(data.get("offset", 0))
        fields["graphs"] = tuple([_graph(graph) for graph in _list(data.get("graphs", []))])
        sources = _object(data.get("sources", {}))
        extra = {visible(key): value for key, value in data.items() if key not in _FRAME}
        return FrameProfile(**fields, sources={_text(name): _source(name, sources[name]) for name in sources}, extra=extra)


def _closure(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and _HEXADECIMAL.fullmatch(value):
        return int(value, 16)
    raise InvalidProfile("'closure' is not a hexadecimal number")


def _source(name: str, data: Any) -> SourceProfile:
    try:
        get = _object(data).get
        size = _sizes(get("size"), ())
        stride = _sizes(get("stride"), _PRODUCTS[: len(size)] if isinstance(size, tuple) else _PRODUCTS)
        if isinstance(size, tuple) and isinstance(stride, tuple) and len(size) != len(stride):
            raise InvalidProfile(f"the tensor has {len(size)} sizes, but {len(stride)} strides")
        seen = tuple([_seen(item) for item in _list(get("seen", []))])
        return SourceProfile(_number(get("scalar")), size, stride, seen)
    except InvalidProfile as error:
        raise InvalidProfile(f"{name:.80}: {error}") from None


def _graph(data: Any) -> Graph:
    return tuple([_graph_size(_text(source), size) for source, sizes in _object(data).items() for size in _list(sizes)])


def _graph_size(source: str, data: Any) -> GraphSize:
    if len(_list(data)) not in (2, 3):
        raise InvalidProfile("a size of a graph is neither a list [dim, value] nor a list [dim, low, high]")
    dim, values = data[0], data[1:]
    if dim is not None:
        _count(dim)
    for value in values:
        if (value is None and len(values) == 2) or (dim is not None and type(value) is int and 0 <= value <= _MAX):
            continue
        if dim is not None or _number(value) in (None, DYNAMIC):
            what = "the size for which a graph was compiled, or a bound of it, is no non-negative int"
            raise InvalidProfile(f"{what}: {value!r:.40}")
    return GraphSize(source, dim, len(values) == 2, values[0], values[-1])


def _seen(data: Any) -> Seen:
    if type(data) is not list or len(data) != 4:
        raise InvalidProfile("an item of 'seen' is not a list [dim, value, run, compile id]")
    dim, value, run, compile_id = data
    if dim is not None:
        if type(dim) is not int or type(value) is not int or not (0 <= dim < _MAX_COUNT and 0 <= value <= _MAX):
            raise InvalidProfile("a dim or size in 'seen' is not a non-negative int")
    elif (value := _number(value)) is None or value == DYNAMIC:
        raise InvalidProfile("a value in 'seen' is not a number")
    # the checks of `_text`, inlined for speed: compile ids are a third of all texts
    if type(compile_id) is not str or len(compile_id) > _SHORT or not compile_id.isprintable():
        compile_id = _text(compile_id)
    return Seen(dim, value, _text(run), compile_id)


def _sizes(value: Any, texts: tuple[str, ...]) -> Atoms:
    """Return the sizes or strides in JSON; each is a number, null, `"dynamic"` or one of `texts`."""
    if value is None or value == DYNAMIC:
        return DYNAMIC if value else None
    sizes = _list(value)
    if len(sizes) > _MAX_DIMS:
        raise InvalidProfile(f"the tensor has {len(sizes)} dims, torch allows {_MAX_DIMS}")
    return tuple([size if type(size) is int and 0 <= size <= _MAX else _no_number(size, texts) for size in sizes])


def _no_number(value: Any, texts: tuple[str, ...]) -> str | None:
    if value is None or value == DYNAMIC or (isinstance(value, str) and value in texts):
        return value
    raise InvalidProfile(f"{value!r:.40} is not a size: a size is a non-negative int")


def _number(value: Any) -> Atom:
    """Return the value in JSON of an argument that is an int or float, or null if unknown; `"dynamic"` also for a tensor."""
    if (type(value) is int and _MIN <= value <= _MAX) or (type(value) is float and math.isfinite(value)):
        return value
    if value is None or (isinstance(value, str) and value in (DYNAMIC, *NOT_FINITE)):
        return value
    raise InvalidProfile(f"{value!r:.40} is not a number")


_PRODUCTS = tuple(f"size({dim})*stride({dim})" for dim in range(_MAX_DIMS))


def _text(value: Any) -> str:
    if type(value) is str and len(value) <= _MAX_TEXT and value.isprintable():
        return value
    if not isinstance(value, str):
        raise InvalidProfile("a value that must be a string is missing, or has another type")
    if len(value) > _MAX_TEXT:
        raise InvalidProfile(f"a string has {len(value)} characters, dynx reads at most {_MAX_TEXT}")
    return visible(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise InvalidProfile("the field of a source line or dim is missing, or is not a non-negative int")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidProfile("a value that must be a list is missing, or has another type")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidProfile(f"the entry of a function, source or graph is not a JSON object: {value!r:.40}")
    return value
