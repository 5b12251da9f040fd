"""Schemas of operators.

Torch: `OpOverload._schema`, alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from typing import Any


def schema_of(operator: Any) -> Any:
    """Give the `torch.FunctionSchema` of what a node of a graph calls; None for higher-order operators and Python functions."""
    return getattr(operator, "_schema", None)
