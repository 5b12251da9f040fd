"""Read operator schemas: which arguments an operator mutates or aliases. Torch: `OpOverload._schema`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def schema_of(operator: Any) -> Any:
    """Return the `torch.FunctionSchema` of an FX node's target; None for higher-order operators and Python functions."""
    return getattr(operator, "_schema", None)


def effects_on(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, bool, bool]]:
    """Yield each argument of an operator call, whether the operator mutates it, and whether the result may alias it."""
    by_name = {parameter.name: parameter for parameter in schema.arguments}
    for parameter, argument in [
        *zip(schema.arguments, args, strict=False),
        *((by_name[name], kwargs[name]) for name in kwargs),
    ]:
        alias = parameter.alias_info
        yield argument, bool(alias is not None and alias.is_write), alias is not None
