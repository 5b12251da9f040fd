"""Read the guards that a tracing attempt requested, the symbols that it specialized, and where it failed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.stack import RawFrame, of_summaries

_USER_STACK = re.compile(r"^\s*(?:from user code|User [Ss]tack(?: \(most recent call last\))?):\s*$(?P<frames>.*)", re.M | re.S)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)', re.M)


class RawGuard(NamedTuple):
    """One requested guard as text, with the user's stack at the line that first requested it, outermost frame first."""

    kind: str  # torch's name of the guard type, such as "TENSOR_MATCH"
    source: str
    stack: tuple[RawFrame, ...]


def guards(tx: Any, first: int = 0) -> tuple[RawGuard, ...]:
    """Return the guards that the current attempt has requested so far, oldest first, from index `first` on.

    Torch: `OutputGraph.guards`, a `GuardsSet` whose `inner` keeps the order of insertion.
    """
    return tuple(
        RawGuard(guard.create_fn_name(), guard_source(guard.originating_source), of_summaries(guard.user_stack))
        for guard in list(tx.output.guards.inner)[first:]
    )


def specialized_sources(tracer_output: Any) -> dict[str, tuple[RawFrame, ...]]:
    """Return the user's stack at which the attempt specialized a symbol to a constant, by the source of the symbol."""
    shape_env = tracer_output.output_graph.shape_env
    stacks = shape_env.specialization_stacks if shape_env is not None else {}
    return {guard_source(source): of_summaries(stack) for source, stack in stacks.items()}


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
