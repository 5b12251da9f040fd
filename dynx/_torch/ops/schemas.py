"""Schemas of operators.

Torch: `OpOverload._schema`, alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def schema_of(operator: Any) -> Any:
    """Give the `torch.FunctionSchema` of what a node of a graph calls; None for higher-order operators and Python functions."""
    return getattr(operator, "_schema", None)


def effects_on(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, bool, bool]]:
    """Give each argument of a call, whether it is written to, and whether the result may be a view of it."""
    by_name = {each.name: each for each in schema.arguments}
    for parameter, argument in [
        *zip(schema.arguments, args, strict=False),
        *((by_name[name], kwargs[name]) for name in kwargs),
    ]:
        alias = parameter.alias_info
        yield argument, bool(alias is not None and alias.is_write), alias is not None
