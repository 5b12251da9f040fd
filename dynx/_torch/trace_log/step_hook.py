"""Wrap the method of Dynamo that traces one instruction.

Torch: `InstructionTranslatorBase.step`, called once for each instruction of each frame; a frame that inlines another one is
inside of a step itself. Alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx._torch.trace_log.room import room_for_frames


class StepHook(Handle):
    """A handle that wraps `step` by `make(original)`, as `hooks.wrap` does, for a wrapper that passes calls on once removed."""

    def __init__(self, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._handles = hooks.wrap(hook_point("step"), make, passes_on=True), room_for_frames()

    def remove(self) -> None:
        """Restore what was wrapped."""
        for handle in self._handles:
            handle.remove()
