"""Reserve memory for Python's frames while Dynamo traces (see `dynx._bytecode.large_frame`).

Torch: `convert_frame.trace_frame` is one tracing attempt; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._bytecode.large_frame import call_in_large_frame
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point


def room_for_frames() -> hooks.Wrapping:
    """Call each tracing attempt from a large frame until the handle is removed.

    A hook of traced instructions or frames makes the stack deeper; the large frame saves more time than the hook costs.
    """
    return hooks.wrap(hook_point("attempt"), _with_room)


def _with_room(original: Callable[..., Any]) -> Callable[..., Any]:
    def trace_frame(*args: Any, **kwargs: Any) -> Any:
        return call_in_large_frame(original, args, kwargs)

    return trace_frame
