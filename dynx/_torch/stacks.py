"""The user's stack while Dynamo traces, as plain tuples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class RawFrame(NamedTuple):
    """One frame of a stack; columns are None where Python or torch does not give them."""

    file: str
    line: int
    function: str
    column: int | None = None
    end_column: int | None = None


def tracing_stack() -> tuple[RawFrame, ...]:
    """Give the stack of the code being traced, outermost first; empty when nothing is traced.

    Torch: `TracingContext.frame_summary_stack` and `loc_in_frame`, alike in 2.11, 2.13 and 2.15. Reading the parts is
    cheaper than `TracingContext.extract_stack()`, which this mirrors.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is None:
        return ()
    frames = [*map(_of_summary, context.frame_summary_stack)]
    here = context.loc_in_frame
    if here is not None:
        frames.append(RawFrame(here[0], here[1] or 0, here[2]))
    return tuple(frames)


def of_summaries(stack: Iterable[Any] | None) -> tuple[RawFrame, ...]:
    """Convert a `traceback.StackSummary`."""
    return tuple(map(_of_summary, stack or ()))


def _of_summary(summary: Any) -> RawFrame:
    return RawFrame(
        summary.filename,
        summary.lineno or 0,
        summary.name,
        getattr(summary, "colno", None),
        getattr(summary, "end_colno", None),
    )
