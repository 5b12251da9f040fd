"""Join, compare and prune profiles.

Profiles are joined as in torch (`pgo.FrameStateSizeEntry.__ior__`): a dim with two different values is dynamic, and a value
that only one profile knows is kept. The join is commutative, associative and idempotent, so that profiles of many processes can
be merged in any order, and more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce

from dynx.records.profile import DYNAMIC, Atom, Atoms, FrameProfile, Graph, ProfileChange, ProfileData, Seen, SourceProfile

Selects = Callable[[FrameProfile, str, int | None], bool]

_KEPT = 4  # smallest values of a dim that are kept, and as many of the largest
_MAX_GRAPHS = 32  # of a function; torch gives up after eight in one process


def join_frames(frames: Iterable[FrameProfile]) -> tuple[FrameProfile, ...]:
    """Join all frames (`FrameProfile`) of the same function into one; return the joined frames, sorted by file and line."""
    joined: dict[object, FrameProfile] = {}
    for frame in frames:
        known = joined.get(frame.key)
        joined[frame.key] = frame if known is None else _join_frame(known, frame)
    return tuple(sorted(joined.values(), key=lambda frame: (frame.file, frame.line, frame.name, str(frame.key))))


def _join_frame(a: FrameProfile, b: FrameProfile) -> FrameProfile:
    sources = dict(a.sources)
    for name, source in b.sources.items():
        sources[name] = join(sources.get(name, SourceProfile()), source)
    return replace(
        a,
        file=min(a.file, b.file),
        qualname=_first(a.qualname, b.qualname),
        source_hash=_first(a.source_hash, b.source_hash),
        offset=max(a.offset, b.offset),
        sources=sources,
        graphs=kept_graphs((*a.graphs, *b.graphs)),
        extra=_join_extra(a.extra, b.extra),
    )


def kept_graphs(graphs: Iterable[Graph]) -> tuple[Graph, ...]:
    """Return at most `_MAX_GRAPHS` of the graphs, without duplicates; the graphs with the most symbols come first."""
    different = {repr(graph): graph for graph in graphs}  # not a set: 1 and 1.0 are equal
    return tuple(sorted(different.values(), key=_generality)[:_MAX_GRAPHS])


def _generality(graph: Graph) -> tuple[int, int, str]:
    symbols = sum(size.marked and not size.is_fixed for size in graph)
    return -symbols, -sum(size.marked for size in graph), repr(graph)


def _join_extra(a: Mapping[str, object], b: Mapping[str, object]) -> dict[str, object]:
    """Join fields unknown to this version, which a newer dynx wrote; of two values, keep the alphabetically first."""
    return {key: min((side[key] for side in (a, b) if key in side), key=str) for key in sorted({*a, *b})}


def _first(a: str | None, b: str | None) -> str | None:
    return min((text for text in (a, b) if text is not None), default=None)


def join(a: SourceProfile, b: SourceProfile) -> SourceProfile:
    """Join two profiles of one source.

    >>> join(SourceProfile(size=(2, 4)), SourceProfile(size=(2, 6))).size
    (2, 'dynamic')
    """
    seen = _kept((*a.seen, *b.seen))  # not a set: 1 and 1.0 are equal
    return SourceProfile(_atom(a.scalar, b.scalar), _atoms(a.size, b.size), _atoms(a.stride, b.stride), seen)


def _atom(a: Atom, b: Atom) -> Atom:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=str) if a == b else DYNAMIC  # 1 and 1.0 are equal: take the same of both in either order


def _atoms(a: Atoms, b: Atoms) -> Atoms:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(map(_atom, a, b)) if len(a) == len(b) else DYNAMIC
    if a is None or b is None:
        return b if a is None else a
    return DYNAMIC


def _kept(seen: Iterable[Seen]) -> tuple[Seen, ...]:
    """Return the `_KEPT` smallest and `_KEPT` largest values of each dim, sorted, each with its first run and compile id."""
    values: dict[tuple[int | None, object], Seen] = {}
    for one in sorted(seen, key=Seen.order, reverse=True):
        values[one.dim, one.value] = one
    ordered = sorted(values.values(), key=Seen.order)
    dims: dict[int | None, list[Seen]] = {}
    for one in ordered:
        dims.setdefault(one.dim, []).append(one)
    return tuple(one for of_dim in dims.values() for one in (*of_dim[:_KEPT], *of_dim[_KEPT:][-_KEPT:]))


def with_seen(source: SourceProfile, seen: Iterable[Seen]) -> SourceProfile:
    """Return the profile of a source after adding `seen`, further values that the source had."""
    return source._replace(seen=_kept((*source.seen, *seen)))


def changes(before: ProfileData, after: ProfileData) -> Iterator[ProfileChange]:
    """Yield each size, int and float in which two profiles differ; functions are matched by the key that torch uses."""
    frames_before, frames_after = ({frame.key: frame for frame in profile.frames} for profile in (before, after))
    for key in sorted({*frames_before, *frames_after}, key=str):
        old, new = frames_before.get(key), frames_after.get(key)
        frame = new or old
        if frame is None:
            continue
        for source in sorted({*(old.sources if old else ()), *(new.sources if new else ())}):
            was, now = (dict(_dims(side, source)) for side in (old, new))
            for dim in sorted({*was, *now}, key=lambda dim: -1 if dim is None else dim):
                if was.get(dim) != now.get(dim):
                    yield ProfileChange(frame, source, dim, was.get(dim), now.get(dim))


def _dims(frame: FrameProfile | None, source: str) -> Iterator[tuple[int | None, Atom]]:
    if frame is not None and source in frame.sources:
        yield from frame.sources[source].dims()


def forgotten(frames: Iterable[FrameProfile], forget: Selects, *, with_graphs: bool) -> Iterator[FrameProfile]:
    """Yield the functions of a profile, without the dynamic sizes for which `forget(frame, source, dim)` returns True.

    The value of a forgotten size becomes None (unknown): in the next run, the size is static until it has had two values in
    that run. A known value would count as the first of the two. If `with_graphs`, also remove the stored graphs in which a
    forgotten size is dynamic. If not, a call that fits only such a graph is still traced with the size dynamic.
    """
    for frame in frames:
        sources = {name: _forget(frame, name, source, forget) for name, source in frame.sources.items()}
        known = {name: source for name, source in sources.items() if source != SourceProfile()}
        graphs = frame.graphs
        if with_graphs:
            graphs = tuple(graph for graph in graphs if not any(one.marked and forget(frame, *one[:2]) for one in graph))
        yield replace(frame, sources=known, graphs=graphs)


def _forget(frame: FrameProfile, name: str, source: SourceProfile, forget: Selects) -> SourceProfile:
    gone = {dim for dim, size in source.dims() if size == DYNAMIC and forget(frame, name, dim)}
    if not gone:
        return source
    seen = tuple(one for one in source.seen if one.dim not in gone)
    if None in gone:
        return SourceProfile() if source.size == DYNAMIC else source._replace(size=None, stride=None, seen=seen)
    sizes = tuple(None if dim in gone else size for dim, size in source.dims())
    return source._replace(size=sizes, seen=seen)


def joined(profiles: Iterable[ProfileData]) -> ProfileData:
    """Return all profiles joined into one."""
    return reduce(_join_profiles, profiles, ProfileData())


def _join_profiles(a: ProfileData, b: ProfileData) -> ProfileData:
    frames = join_frames((*a.frames, *b.frames))
    # a run with two descriptions keeps the alphabetically first
    runs = {run: min(side.runs[run] for side in (a, b) if run in side.runs) for run in {**a.runs, **b.runs}}
    return ProfileData(frames, runs, tuple(sorted({*a.torch, *b.torch})), extra=_join_extra(a.extra, b.extra))
