"""Observe which cache entries a call runs, and the locals that their guards checked.

Torch runs an entry as a frame with the compiled code and the function's locals; a Python profile function observes such frames.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from dynx._torch.cache.entry import RawEntry
from dynx._torch.capabilities import require


class FrameRun(NamedTuple):
    """A cache entry that a call is about to run, with the locals and globals of the frame."""

    entry: RawEntry
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]


def frames_run(
    call: Callable[[], object], entries: Iterable[RawEntry], at_start: Callable[[FrameRun], object] | None = None
) -> list[RawEntry]:
    """Run `call` and return which of `entries` it runs on this thread, in order. Raises what `call` raises.

    `at_start` is called with a `FrameRun` before the first instruction of each entry, while Dynamo is disabled.
    """
    require("set_eval_frame")
    from torch._C._dynamo import eval_frame

    by_code = {id(entry.compiled): entry for entry in entries}
    runs: list[RawEntry] = []

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (entry := by_code.get(id(frame.f_code))) is not None:
            runs.append(entry)
            if at_start is not None:
                prior = eval_frame.set_eval_frame(None)
                put(None)
                try:
                    at_start(FrameRun(entry, dict(frame.f_locals), frame.f_globals))
                finally:
                    put(on_event)
                    eval_frame.set_eval_frame(prior)

    get, put = free_profile_hook()
    before = get()
    put(on_event)
    try:
        call()
    finally:
        put(before)
    return runs


def free_profile_hook() -> tuple[Any, Any]:
    """Return `sys.getprofile` and `sys.setprofile`; but if a profiler is running, return `sys.gettrace` and `sys.settrace`.

    Used to observe frames. A running profiler is not replaced: if it is in C, as cProfile is, Python code cannot restore it.
    """
    return (sys.getprofile, sys.setprofile) if sys.getprofile() is None else (sys.gettrace, sys.settrace)
