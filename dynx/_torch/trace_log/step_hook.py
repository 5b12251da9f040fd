"""Wrap the method with which Dynamo traces one instruction.

Torch: `InstructionTranslatorBase.step` is called for each instruction of each frame; an inlined frame is traced inside a step
of its caller. Alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.trace_log.room import room_for_frames


class StepHook(Handle):
    """A handle that replaces `step` by `make(original)`; after `remove()`, that function must only call through."""

    def __init__(self, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._handles = hooks.wrap(hook_point("step"), make, passes_on=True), room_for_frames()

    def remove(self) -> None:
        """Remove the wrapper."""
        for handle in self._handles:
            handle.remove()
