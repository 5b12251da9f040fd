"""Record every user stack from which Dynamo requested a guard.

For each guard, torch keeps only the stack of the first request (`GuardsSet.add`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from dynx._reading.user_location import user_location
from dynx._torch.cache.guard_failures import guard_source, guarded_attribute, is_of_value
from dynx._torch.tracing.stack import StackParts, is_same_line, of_parts, stack_parts
from dynx.records import Location

T = TypeVar("T")

_LOCAL = re.compile(r"L\[\s*['\"](.*?)['\"]\s*\]")  # as torch shortens sources in its messages
_DIMENSION = re.compile(r"\.(?:size|stride)\(\)\[\d+\]$")


def short_source(source: str) -> str:
    """Shorten a source as torch does in recompile reasons: `L['x'].size()[0]` becomes `x.size()[0]`."""
    return _LOCAL.sub(r"\1", source)


def tensor_source(source: str) -> str:
    """Return the source of the tensor whose size or stride `source` names: `x` for `x.size()[0]`; else `source` unchanged."""
    return _DIMENSION.sub("", source)


class Requests:
    """The user stacks from which Dynamo requested each guard during one trace attempt.

    A stack is taken for every guard, so taking it must be cheap; its lines are computed later, only where they are needed.
    """

    __slots__ = ("_added",)

    def __init__(self) -> None:
        self._added: list[tuple[Any, StackParts]] = []  # Dynamo's `Guard`s, each with the user stack that requested it

    def add(self, guard: Any) -> None:
        """Record that `guard` was requested: store the user stack of the line that Dynamo is tracing now."""
        if (stack := stack_parts()) is not None:
            self._added.append((guard, stack))

    def by_name(self) -> dict[str, list[StackParts]]:
        """Return the stacks that requested guards, by the name of the guarded value (a str, to keep no source object alive).

        Of successive stacks at the same line of the same call, only the first is returned. A stack that requested a guard on
        the presence of attribute `a` of `x` is listed under `x` and `x.a`, because torch's message names only `x`.
        """
        result: dict[str, list[StackParts]] = {}
        names: dict[int, str] = {}  # by id() of the source
        for guard, stack in self._added:
            source = guard.originating_source
            if (name := names.get(id(source))) is None:
                name = names[id(source)] = guard_source(source)
            attribute = guarded_attribute(guard)
            for key in (name, f"{name}.{attribute}") if attribute else (name,):
                stacks = result.setdefault(key, [])
                if not stacks or not is_same_line(stacks[-1], stack):
                    stacks.append(stack)
        return result

    def of_values(self) -> frozenset[str]:
        """Return the names of the values that a guard compares, not only their types."""
        return frozenset(guard_source(guard.originating_source) for guard, _ in self._added if is_of_value(guard))


def by_short_source(values: Mapping[str, T]) -> dict[str, T]:
    """Return a copy of a dict whose keys are sources of guards, with each source shortened by `short_source`."""
    return {short_source(source): value for source, value in values.items()}


def lines_for(source: str, requests: Mapping[str, list[StackParts]], call_site: Location | None) -> tuple[Location, ...]:
    """List the distinct lines that requested a guard on `source`, in the order of the requests.

    `source` and the keys of `requests` are written as in torch's messages. If no line requested a guard on `source`, return
    the lines for the value that it is read from: for `x.size()[0]`, the lines that requested a guard on `x`.
    """
    prefix = source
    while prefix:
        if stacks := requests.get(prefix):
            lines = (user_location(of_parts(stack), call_site) for stack in stacks)
            return tuple(dict.fromkeys(line for line in lines if line is not None))
        end = max(prefix.rfind("."), prefix.rfind("["))
        prefix = prefix[:end] if end > 0 else ""
    return ()
