"""Let libraries see a capture that is none of CUDA's."""

from __future__ import annotations

from collections.abc import Callable

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point


def report_as_capturing(is_capturing: Callable[[], bool]) -> hooks.Wrapping:
    """Let `torch.cuda.is_current_stream_capturing` also return True where `is_capturing` does, until the handle is removed.

    Libraries ask it before they read a value: transformers, for example, where it creates masks.
    """

    def make(original: Callable[[], bool]) -> Callable[[], bool]:
        def is_current_stream_capturing() -> bool:
            return is_capturing() or original()

        return is_current_stream_capturing

    return hooks.wrap(hook_point("stream_capturing"), make)
