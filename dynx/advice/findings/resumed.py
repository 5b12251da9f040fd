"""Find the functions that graph breaks split: the part after a graph break is a resume function, a frame of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dynx.advice.rule import FrameKey, is_caused_by
from dynx.records.compile import Compile
from dynx.records.graph_break import GraphBreak
from dynx.records.record import frame_id


class Part(NamedTuple):
    """A part of a function that a graph break split: the key of the whole function, and the graph break before this part."""

    whole: FrameKey  # the function that the program called
    after: GraphBreak | None  # None for the first part


def parts_of(compiles: Iterable[Compile], breaks: Sequence[GraphBreak]) -> Mapping[FrameKey, Part]:
    """Return for each resume function the function that it continues, and the graph break before it."""
    parts: dict[FrameKey, Part] = {}
    for compile in compiles:
        frame = frame_of(compile.key)
        if compile.resumes is None or frame in parts:
            continue
        graph_break = next((found for found in breaks if is_caused_by(compile, found)), None)
        if graph_break is not None and graph_break.compiles:
            whole = frame_of(graph_break.compiles[0])
            if whole != frame:
                parts[frame] = Part(whole, graph_break)
    return {frame: Part(_outermost(frame, parts), part.after) for frame, part in parts.items()}


def _outermost(frame: FrameKey, parts: Mapping[FrameKey, Part]) -> FrameKey:
    seen = {frame}
    while frame in parts and parts[frame].whole not in seen:
        frame = parts[frame].whole
        seen.add(frame)
    return frame


def frame_of(key: tuple[int, str]) -> FrameKey:
    """Return the frame of a compilation, given how often torch._dynamo was reset before it, and its compile id ("0/1")."""
    return FrameKey(key[0], frame_id(key[1]))
