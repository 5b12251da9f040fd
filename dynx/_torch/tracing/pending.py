"""Read the guards that the current tracing attempt has requested so far."""

from __future__ import annotations

from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.stack import RawFrame, of_summaries


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


def guard_count(tx: Any) -> int:
    """Return the number of guards that the current attempt has requested so far."""
    return len(tx.output.guards.inner)
