"""Show the results of `dynx.pgo` (PGO profiles, differences, dynamic sizes, matches with the source) as blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby

from dynx.advice import spoken
from dynx.records.location import short_path
from dynx.records.profile import (
    DYNAMIC,
    Atom,
    Atoms,
    DynamicSize,
    DynamicSizes,
    FrameProfile,
    ProfileData,
    ProfileDiff,
    ProfileMatches,
    Seen,
    SourceProfile,
)
from dynx.report import _words as words
from dynx.report._records.block import Block
from dynx.report._wrap import unbroken

_MAX_NAME = 12  # characters of the name of a run that is shown as it is


def of_profile(profile: ProfileData) -> Iterator[Block]:
    """Yield a block of totals, then one for each function, with its tensor sizes, ints and floats, dynamic ones first."""
    facts = [words.plural(len(profile.runs), "run"), *(f"torch {version}" for version in profile.torch)]
    names = _names(profile.runs)
    yield Block(words.plural(len(profile.frames), "function"), ", ".join(facts), notes=tuple(_runs(profile.runs)))
    for frame in profile.frames:
        rows = [
            (spoken(name), _sizes(source), _values(source, names)) for name, source in sorted(frame.sources.items(), key=_order)
        ]
        yield Block(_place(frame), _name(frame), ("value", "size", "values seen"), rows)


def of_diff(diff: ProfileDiff) -> Iterator[Block]:
    """Yield blocks with the sizes that differ between two profiles, by function."""
    yield Block(f"{words.plural(len(diff), 'size')} differ" if diff else "no difference")
    for _, group in groupby(diff, key=lambda change: change.frame.key):
        changes = list(group)
        rows = [(_dim(change.source, change.dim), _text(change.before), _text(change.after)) for change in changes]
        yield Block(_place(changes[0].frame), _name(changes[0].frame), ("value", "before", "after"), rows)


def of_explanation(found: DynamicSizes) -> Iterator[Block]:
    """Yield blocks with the dynamic sizes and the values that made them dynamic, by function."""
    title, names = words.plural(len(found), "dynamic size or number", "dynamic sizes and numbers"), _names(found.runs)
    yield Block(title, notes=tuple(_runs(found.runs)))
    for function, group in groupby(found, key=lambda size: words.function(size.location)):
        rows = [(_dim(size.source, size.dim), _seen(size.seen, names), _fixed(size)) for size in group]
        yield Block(function, "", ("value", "values seen", ""), rows)


def of_matches(matches: ProfileMatches) -> Iterator[Block]:
    """Yield a block that says which functions of a profile changed in the source; unchanged functions are only counted."""
    counts = Counter(match.state for match in matches)
    title = ", ".join(f"{count} {state}" for state, count in counts.items()) or "the profile has no functions"
    rows = [
        (_place(match.frame), _name(match.frame), match.state + (f", now line {match.line}" if match.line else ""), match.why)
        for match in matches
        if match.state != "same"
    ]
    remark = "of the functions are as in the profile" if counts and not rows else ""
    yield Block(title, remark, ("function", "", "", ""), rows)


def _names(runs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the name to show for each run that added to a profile: its id if this is short, else a number."""
    return {run: run if len(run) <= _MAX_NAME else str(number) for number, run in enumerate(sorted(runs), 1)}


def _runs(runs: Mapping[str, str]) -> Iterator[str]:
    names = _names(runs)
    yield from (f"run {names[run]}: {text}" for run, text in sorted(runs.items()))


def _place(frame: FrameProfile) -> str:
    return unbroken(f"{short_path(frame.file)}:{frame.line}")


def _name(frame: FrameProfile) -> str:
    name = frame.qualname or frame.name
    resumes = f", resume function after line {frame.line}" if frame.name.startswith("torch_dynamo_resume_in_") else ""
    return name + resumes + ("" if frame.is_portable else "  (closure hashed for one process)")


def _order(named: tuple[str, SourceProfile]) -> tuple[bool, str]:
    return all(value != DYNAMIC for _, value in named[1].dims()), named[0]


def _sizes(source: SourceProfile) -> str:
    if source.size == DYNAMIC:
        return _text(source.scalar)
    if source.size is None:
        return "not known"
    stride = "" if source.stride is None or not _has_dynamic(source.stride) else f", stride {_list(source.stride)}"
    return _list(source.size) + stride


def _has_dynamic(stride: Atoms) -> bool:
    return stride == DYNAMIC or (isinstance(stride, tuple) and DYNAMIC in stride)


def _list(sizes: Atoms) -> str:
    return f"[{', '.join(map(_text, sizes))}]" if isinstance(sizes, tuple) else _text(sizes)


def _text(value: Atom) -> str:
    return "not known" if value is None else str(value)


def _values(source: SourceProfile, names: Mapping[str, str]) -> str:
    dims = [dim for dim, value in source.dims() if value == DYNAMIC and source.values(dim)]
    return "; ".join(f"{'' if dim is None else f'size({dim}): '}{_seen(source.values(dim), names)}" for dim in dims)


def _seen(seen: tuple[Seen, ...], names: Mapping[str, str]) -> str:
    """Return values with compile ids and run as text: `4 (0/0), 6 (0/1) in run A`; `names` has the name for each run id."""
    by_run: dict[str, list[str]] = {}
    for one in seen:
        by_run.setdefault(one.run, []).append(f"{one.value} ({one.compile_id})")
    shown = (f"{', '.join(values)} in run {names.get(run, run)}" for run, values in by_run.items())
    return "; ".join(shown) or "the profile has no values"


def _dim(source: str, dim: int | None) -> str:
    return spoken(source) if dim is None else f"{spoken(source)}.size({dim})"


def _fixed(size: DynamicSize) -> str:
    return "" if size.fixed_by is None else f"static again by {words.line(size.fixed_by)}"
