"""Every line that requested a guard, not only the first one.

torch keeps one user stack per guard, that of the first request (`GuardsSet.add`): if three lines need a guard, it names one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.stack import StackParts, is_same_line, of_parts, stack_parts
from dynx._trace.user_location import user_location
from dynx.records import Location

_LOCAL = re.compile(r"L\[\s*['\"](.*?)['\"]\s*\]")  # as torch shortens sources in its messages
_DIMENSION = re.compile(r"\.(?:size|stride)\(\)\[\d+\]$")


def short_source(source: str) -> str:
    """Write a source as torch does in recompile reasons: `L['x'].size()[0]` becomes `x.size()[0]`."""
    return _LOCAL.sub(r"\1", source)


def tensor_source(source: str) -> str:
    """Return the source of the tensor whose size or stride `source` is: `x` for `x.size()[0]`."""
    return _DIMENSION.sub("", source)


class Requests:
    """The guards that one attempt requested, each with the stacks of its requests.

    A stack is taken for every guard, which must be cheap; lines are worked out only for a guard that fails.
    """

    __slots__ = ("_by_source",)

    def __init__(self) -> None:
        self._by_source: dict[Any, list[StackParts]] = {}  # by torch's source object

    def add(self, guard: Any) -> None:
        """Keep the current stack for a guard of torch, unless it is the call and line of the previous request."""
        stack = stack_parts()
        if stack is None:
            return
        stacks = self._by_source.setdefault(guard.originating_source, [])
        if not stacks or not is_same_line(stacks[-1], stack):
            stacks.append(stack)

    def by_name(self) -> dict[str, list[StackParts]]:
        """Return the stacks by the name of the source, without a reference to torch's source objects."""
        return {guard_source(source): stacks for source, stacks in self._by_source.items()}


def lines_for(source: str, requests: Mapping[str, list[StackParts]], call_site: Location | None) -> tuple[Location, ...]:
    """List the lines that requested a guard on `source`, without duplicates, in the order of the requests.

    `source` is written as in torch's messages. If nothing requested it, its owner is tried: the guard on `x.size()[0]` was
    requested for `x`.
    """
    return lines_of(source, shortened(requests), call_site)


def shortened(requests: Mapping[str, list[StackParts]]) -> dict[str, list[StackParts]]:
    """Return the requests by their sources as written in torch's messages."""
    return {short_source(name): stacks for name, stacks in requests.items()}


def lines_of(source: str, by_short_source: Mapping[str, list[StackParts]], call_site: Location | None) -> tuple[Location, ...]:
    """Return what `lines_for` returns, from requests that were `shortened` once for many guards."""
    prefix = source
    while prefix:
        if stacks := by_short_source.get(prefix):
            lines = (user_location(of_parts(stack), call_site) for stack in stacks)
            return tuple(dict.fromkeys(line for line in lines if line is not None))
        end = max(prefix.rfind("."), prefix.rfind("["))
        prefix = prefix[:end] if end > 0 else ""
    return ()
