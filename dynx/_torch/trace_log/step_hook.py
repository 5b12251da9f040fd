"""Wrap the method with which Dynamo traces one instruction, and reserve memory for Python's frames while Dynamo traces.

Torch: `convert_frame.trace_frame` is one tracing attempt, and calls `InstructionTranslatorBase.step` for each instruction of
each frame; an inlined frame is traced inside a step of its caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._bytecode.large_frame import call_in_large_frame
from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point


class StepHook(Handle):
    """A handle that replaces `step` by the result of `make(original)`, which must just call `original` after `remove()`."""

    def __init__(self, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._handles = hooks.wrap(hook_point("step"), make, passes_on=True), room_for_frames()

    def remove(self) -> None:
        """Remove the wrapper."""
        for handle in self._handles:
            handle.remove()


def room_for_frames() -> hooks.Wrapping:
    """Reserve memory for Python's frames (see `large_frame`) in each tracing attempt, until the handle is removed.

    A hook of traced instructions or frames makes the stack deeper; the reserved memory saves more time than the hook costs.
    """
    return hooks.wrap(
        hook_point("attempt"), lambda original: lambda *args, **kwargs: call_in_large_frame(original, args, kwargs)
    )
