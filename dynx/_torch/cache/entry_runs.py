"""Which cache entries a call runs, and the locals that their guards looked at.

Torch runs an entry as a frame of its own, of the compiled code but with the locals of the function: a profile function sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.profile_hook import free_observer
from dynx._torch.capabilities import require


class FrameRun(NamedTuple):
    """An entry that ran; holds the values of the call."""

    entry: RawEntry
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]


def frames_run(
    call: Callable[[], object], entries: Iterable[RawEntry], at_start: Callable[[FrameRun], object] | None = None
) -> list[RawEntry]:
    """Make a call and list which of these entries it runs on this thread, in order. Raises what it raises.

    `at_start` is called before the first instruction of each, with nothing compiled meanwhile.
    """
    require("set_eval_frame")
    from torch._C._dynamo import eval_frame

    by_code = {id(each.compiled): each for each in entries}
    found: list[RawEntry] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (entry := by_code.get(id(frame.f_code))) is not None:
            found.append(entry)
            if at_start is not None:
                prior = eval_frame.set_eval_frame(None)
                put(None)
                try:
                    at_start(FrameRun(entry, dict(frame.f_locals), frame.f_globals))
                finally:
                    put(note)
                    eval_frame.set_eval_frame(prior)

    get, put = free_observer()
    before = get()
    put(note)
    try:
        call()
    finally:
        put(before)
    return found
