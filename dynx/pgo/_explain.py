"""Explain why sizes are dynamic, from the values that a PGO profile has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dynx.records import Location
from dynx.records.profile import DYNAMIC, DynamicSize, FrameKey, ProfileData

_NOTHING: Mapping[Any, Any] = {}


def explained(
    profile: ProfileData,
    source: str | None = None,
    dim: int | None = None,
    lines: Mapping[tuple[FrameKey, str], Location | None] = _NOTHING,
    fixed: Mapping[tuple[FrameKey, str, int | None], Location | None] = _NOTHING,
) -> Iterator[DynamicSize]:
    """Yield the dynamic sizes of a profile, and its dynamic ints and floats, each with the values that it had.

    Args:
        profile: The profile.
        source: Yield only sizes of this source: `L['x']`, or `x` for short. None: all.
        dim: Yield only sizes of this dim. None: all.
        lines: For each (key of a function, source), the line that first used the source.
        fixed: For each (key of a function, source, dim), the line that specialized this dynamic size to one value.
    """
    for frame in profile.frames:
        for name, known in sorted(frame.sources.items()):
            if source is not None and source not in (name, _short(name)):
                continue
            line = lines.get((frame.key, name)) or Location(frame.file, frame.line, frame.qualname or frame.name)
            for size_dim, value in known.dims():
                if value == DYNAMIC and dim in (None, size_dim):
                    where = fixed.get((frame.key, name, size_dim))
                    yield DynamicSize(line, name, size_dim, known.values(size_dim), where)


def _short(source: str) -> str:
    """Return the source as the user writes it: `x` for `L['x']`."""
    if source.startswith("L['") and "']" in source:
        return source[3:].replace("']", "", 1)
    return source
