"""Read the user's stack at the line that Dynamo is tracing, as plain tuples."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple


class RawFrame(NamedTuple):
    """One frame of the user's stack; columns are None where Python or torch does not record them."""

    file: str
    line: int
    function: str
    column: int | None = None
    end_column: int | None = None


# a stack as torch stores it: frame summaries, then file, line and function of the innermost frame; cheap to read
StackParts = tuple[tuple[Any, ...], tuple[str, int | None, str] | None]


def stack_parts() -> StackParts | None:
    """Return the user's stack at the line being traced as torch stores it; None when Dynamo traces nothing.

    Torch: `TracingContext.frame_summary_stack` and `loc_in_frame`. This function runs for every guard:
    `TracingContext.extract_stack()`, which returns the same stack, takes ten times as long.
    """
    context = _tracing_context().try_get()
    return None if context is None else (tuple(context.frame_summary_stack), context.loc_in_frame)


@cache
def _tracing_context() -> Any:
    from torch._guards import TracingContext  # an import statement that finds the module takes 2 us

    return TracingContext


def is_same_line(a: StackParts, b: StackParts) -> bool:
    """Return whether two stacks are at the same line of the same call; torch creates new frame summaries for every call."""
    return a[1] == b[1] and len(a[0]) == len(b[0]) and (not a[0] or a[0][-1] is b[0][-1])


def of_parts(parts: StackParts) -> tuple[RawFrame, ...]:
    """Convert a stack from `stack_parts` to a tuple of frames, outermost frame first."""
    summaries, location = parts
    frames = [*map(_of_summary, summaries)]
    if location is not None:
        frames.append(RawFrame(location[0], location[1] or 0, location[2]))
    return tuple(frames)


def tracing_stack() -> tuple[RawFrame, ...]:
    """Return the user's stack at the line being traced, outermost frame first; empty when Dynamo traces nothing."""
    parts = stack_parts()
    return () if parts is None else of_parts(parts)


def of_summaries(stack: Iterable[Any] | None) -> tuple[RawFrame, ...]:
    """Convert a `traceback.StackSummary` to a tuple of frames, in the same order."""
    return tuple(map(_of_summary, stack or ()))


def _of_summary(summary: Any) -> RawFrame:
    return RawFrame(
        summary.filename,
        summary.lineno or 0,
        summary.name,
        getattr(summary, "colno", None),
        getattr(summary, "end_colno", None),
    )
