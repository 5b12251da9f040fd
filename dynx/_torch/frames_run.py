"""Which cache entries a call runs, and the locals that their guards looked at.

Torch runs an entry as a frame of its own, of the compiled code but with the locals of the function: a profile function sees it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from dynx._torch.pinned import RawEntry


class FrameRun(NamedTuple):
    """An entry that ran; holds the values of the call."""

    entry: RawEntry
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]


def frames_run(call: Callable[[], object], entries: Iterable[RawEntry]) -> list[FrameRun]:
    """Make a call and list the frames of these entries that it runs on this thread, in order. Raises what it raises."""
    by_code = {id(each.compiled): each for each in entries}
    found: list[FrameRun] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (entry := by_code.get(id(frame.f_code))) is not None:
            found.append(FrameRun(entry, dict(frame.f_locals), frame.f_globals))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found
