"""Read which symbolic sizes and numbers a finished tracing attempt specialized, and at which lines."""

from __future__ import annotations

from typing import Any

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.stack import RawFrame, of_summaries


def specialized_sources(tracer_output: Any) -> dict[str, tuple[RawFrame, ...]]:
    """Return the sources of symbols that a tracing attempt specialized to a constant, each with the user's stack at that line.

    Torch: `ShapeEnv.specialization_stacks`, alike in 2.11, 2.13 and 2.15.
    """
    shape_env = tracer_output.output_graph.shape_env
    stacks = shape_env.specialization_stacks if shape_env is not None else {}
    return {guard_source(source): of_summaries(stack) for source, stack in stacks.items()}
