"""Graph breaks in functions under `functools.lru_cache`: Dynamo ignores the cache, and traces the function in each graph."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from dynx.records.finding import Alternative
from dynx.records.graph_break import GraphBreak
from dynx.records.observed import TorchWarning

_IGNORES = "functools.lru_cache"  # in torch's warning


def constant_result(graph_break: GraphBreak, warnings: Iterable[TorchWarning]) -> Alternative | None:
    """Return the alternative to take the result of the cached function as a constant; None if no cached function was called."""
    ignored = (warning.location for warning in warnings if _IGNORES in warning.text and warning.location is not None)
    calls = {(location.file, location.line) for location in ignored}
    for caller, called in pairwise(graph_break.chain):
        if (caller.own.file, caller.own.line) in calls:
            decorator = f"put @torch.compiler.assume_constant_result below the lru_cache of {called.function}"
            return Alternative(f"{decorator}: Dynamo ignores the cache, and then keeps the result as a constant")
    return None
