"""Who asked for a guard: every line, not only the first.

torch keeps one user stack per guard, that of the first request (`GuardsSet.add`); a guard that three lines need names one.
"""

from __future__ import annotations

import re
from typing import Any

from dynx._torch.guards import guard_source
from dynx._torch.stacks import RawFrame, tracing_stack
from dynx._trace.userline import user_location
from dynx.records import Location

_LOCAL = re.compile(r"L\[\s*['\"](.*?)['\"]\s*\]")  # as torch shortens sources in its messages


def short_source(source: str) -> str:
    """Write a source as torch does in recompile reasons: `L['x'].size()[0]` becomes `x.size()[0]`."""
    return _LOCAL.sub(r"\1", source)


class Requests:
    """The guards that one attempt asked for, with the stacks that asked; resolved to lines when the attempt commits."""

    __slots__ = ("_stacks",)

    def __init__(self) -> None:
        self._stacks: dict[Any, list[tuple[RawFrame, ...]]] = {}

    def add(self, guard: Any) -> None:
        stacks = self._stacks.setdefault(guard.originating_source, [])
        stack = tracing_stack()
        if stack and (not stacks or stacks[-1] != stack):
            stacks.append(stack)

    def by_source(self, call_site: Location | None) -> dict[str, tuple[Location, ...]]:
        """Give the lines that asked for a guard on each source, in order, each once."""
        found: dict[str, tuple[Location, ...]] = {}
        for source, stacks in self._stacks.items():
            lines = dict.fromkeys(line for stack in stacks if (line := user_location(stack, call_site)) is not None)
            found[short_source(guard_source(source))] = tuple(lines)
        return found


def lines_for(source: str, requests: dict[str, tuple[Location, ...]]) -> tuple[Location, ...]:
    """Find who asked for a guard on `source`, or on the value it is a part of: `x.size()[0]` belongs to `x`."""
    text = source
    while text:
        if lines := requests.get(text):
            return lines
        cut = max(text.rfind("."), text.rfind("["))
        text = text[:cut] if cut > 0 else ""
    return ()
