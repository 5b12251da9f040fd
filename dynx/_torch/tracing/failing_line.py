"""Read from an exception of torch at which line of the user's code a compilation failed."""

from __future__ import annotations

import re

from dynx._torch.tracing.stack import RawFrame, of_summaries

_USER_STACK = re.compile(r"^\s*(?:from user code|User [Ss]tack(?: \(most recent call last\))?):\s*$(?P<frames>.*)", re.M | re.S)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)', re.M)


def stack_of_failure(error: BaseException) -> tuple[RawFrame, ...]:
    """Return the user's stack at which a compilation failed, outermost frame first; empty if the exception has none.

    Torch: `real_stack` of the exception, or the text after "from user code:" or "User stack:" in its message.
    """
    stack = of_summaries(getattr(error, "real_stack", None))
    if stack:
        return stack
    text = _USER_STACK.search(str(error))
    return tuple(
        RawFrame(match["file"], int(match["line"]), match["function"])
        for match in _FRAME.finditer(text["frames"] if text else "")
    )
