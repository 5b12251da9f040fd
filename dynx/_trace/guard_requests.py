"""Who asked for a guard: every line, not only the first.

torch keeps one user stack per guard, that of the first request (`GuardsSet.add`); a guard that three lines need names one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.tracing.stack import StackParts, of_parts, same_place, stack_parts
from dynx._trace.user_location import user_location
from dynx.records import Location

_LOCAL = re.compile(r"L\[\s*['\"](.*?)['\"]\s*\]")  # as torch shortens sources in its messages
_PART = re.compile(r"\.(?:size|stride)\(\)\[\d+\]$")


def short_source(source: str) -> str:
    """Write a source as torch does in recompile reasons: `L['x'].size()[0]` becomes `x.size()[0]`."""
    return _LOCAL.sub(r"\1", source)


def whole(source: str) -> str:
    """Give the tensor that a size or stride belongs to: `x.size()[0]` is of `x`."""
    return _PART.sub("", source)


class Requests:
    """The guards that one attempt asked for, with the stacks that asked.

    Taking a stack must be cheap, since it happens for every guard; lines are only worked out for a guard that fails.
    """

    __slots__ = ("_by_source",)

    def __init__(self) -> None:
        self._by_source: dict[Any, list[StackParts]] = {}

    def add(self, guard: Any) -> None:
        stack = stack_parts()
        if stack is None:
            return
        stacks = self._by_source.setdefault(guard.originating_source, [])
        if not stacks or not same_place(stacks[-1], stack):
            stacks.append(stack)

    def named(self) -> dict[str, list[StackParts]]:
        """Give the stacks by the name of the source; torch's own objects are let go."""
        return {guard_source(source): stacks for source, stacks in self._by_source.items()}


def lines_for(source: str, requests: Mapping[str, list[StackParts]], call_site: Location | None) -> tuple[Location, ...]:
    """Name every line that asked for a guard on `source`, each once, in order.

    `source` is written as torch's messages write it; the guard on `x.size()[0]` belongs to `x`.
    """
    return lines_of(source, shortened(requests), call_site)


def shortened(requests: Mapping[str, list[StackParts]]) -> dict[str, list[StackParts]]:
    """Return the requests by the sources as torch's messages write them."""
    return {short_source(name): stacks for name, stacks in requests.items()}


def lines_of(source: str, by_short: Mapping[str, list[StackParts]], call_site: Location | None) -> tuple[Location, ...]:
    """Return what `lines_for` returns, from requests that are `shortened` once for many guards."""
    text = source
    while text:
        if stacks := by_short.get(text):
            lines = (user_location(of_parts(stack), call_site) for stack in stacks)
            return tuple(dict.fromkeys(line for line in lines if line is not None))
        cut = max(text.rfind("."), text.rfind("["))
        text = text[:cut] if cut > 0 else ""
    return ()
