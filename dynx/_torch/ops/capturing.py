"""Make torch report a capture by dynx's CPU emulator of CUDA graphs to libraries that ask whether a stream is capturing."""

from __future__ import annotations

from collections.abc import Callable

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point


def report_as_capturing(is_capturing: Callable[[], bool]) -> hooks.Wrapping:
    """Make `torch.cuda.is_current_stream_capturing` also return True if `is_capturing` does, until the handle is removed.

    Libraries call it before they read the value of a tensor, as transformers does when it creates masks.
    """

    def make(original: Callable[[], bool]) -> Callable[[], bool]:
        def is_current_stream_capturing() -> bool:
            return is_capturing() or original()

        return is_current_stream_capturing

    return hooks.wrap(hook_point("stream_capturing"), make)
