"""Wrap the method of Dynamo that traces one instruction.

Torch: `InstructionTranslatorBase.step`, called once for each instruction of each frame; a frame that inlines another one is
inside of a step itself. `convert_frame.trace_frame` is one attempt to trace a function. Alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._bytecode.large_frame import call_in_large_frame
from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point


class StepHook(Handle):
    """A handle that wraps `step` by `make(original)`, as `hooks.wrap` does, for a wrapper that passes calls on once removed.

    A wrapper makes the stack of each traced frame deeper. Traces run with room for their frames meanwhile, which saves more.
    """

    def __init__(self, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._handles = (
            hooks.wrap(hook_point("step"), make, passes_on=True),
            hooks.wrap(hook_point("attempt"), _with_room),
        )

    def remove(self) -> None:
        """Restore both functions."""
        for handle in self._handles:
            handle.remove()


def _with_room(original: Callable[..., Any]) -> Callable[..., Any]:
    def trace_frame(*args: Any, **kwargs: Any) -> Any:
        return call_in_large_frame(original, args, kwargs)

    return trace_frame
