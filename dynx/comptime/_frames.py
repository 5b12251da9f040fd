"""A symbolic frame as a record, with the source around its place."""

from __future__ import annotations

import linecache
from collections.abc import Mapping

from dynx._torch.tracing.stack import RawFrame
from dynx._trace.userline import location_of, named, owner_of_file
from dynx.records import FrameState

_AROUND = 3  # lines of source before and after


def frame_state(place: RawFrame, instruction: str, stack: tuple[str, ...], variables: Mapping[str, str]) -> FrameState:
    location = named(location_of(place, owner_of_file(place.file)[1]))
    lines = linecache.getlines(location.file)
    first = max(1, location.line - _AROUND)
    source = tuple(line.rstrip("\n") for line in lines[first - 1 : location.line + _AROUND])
    return FrameState(location, instruction, stack, variables, source, first)
