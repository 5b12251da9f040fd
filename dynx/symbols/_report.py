"""Report the symbols of a traced graph."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from dynx._reading.user_location import user_location
from dynx._torch.shapes.symbol_facts import RawSymbol, shape_env_of, symbols_in
from dynx.errors import UsageError
from dynx.records import Symbol, SymbolReport
from dynx.symbols._install import active

_NAME = re.compile(r"(?P<kind>[a-z]+)(?P<number>\d+)$")
_TORCH = 100  # torch's own numbers are a hash modulo 100


def report(shape_env: Any) -> SymbolReport:
    """Describe each symbol of a graph: name, source, value in the traced call, range, and the line that fixed it to one value.

    Args:
        shape_env: a `ShapeEnv`, or an object that contains one: the `GraphModule` that a backend gets, or a `FakeTensorMode`.

    Returns:
        A record with the symbols in the order of their creation. A symbol is `collided` if its number was already in use
        for another source, so that its name depends on the order of creation.

    Raises:
        UsageError: there is no `ShapeEnv` in the argument, as in a graph whose shapes are all static.

    Example:
        >>> import torch
        >>> from dynx import symbols
        >>> def backend(graph_module, example_inputs):
        ...     print(*symbols.report(graph_module).symbols[0].sources)
        ...     return graph_module
        >>> _ = torch.compile(lambda x: x * 2, backend=backend, dynamic=True)(torch.ones(3))
        L['x'].size()[0]
    """
    env = shape_env_of(shape_env)
    if env is None:
        raise UsageError(
            f"no ShapeEnv in a {type(shape_env).__name__}\n"
            "  pass a ShapeEnv, a FakeTensorMode, or the GraphModule that a backend gets, with at least one dynamic size"
        )
    scheme = active()
    symbols = tuple(_symbol(raw) for raw in symbols_in(env))
    return SymbolReport(scheme.name if scheme is not None else "torch", symbols)


def _symbol(raw: RawSymbol) -> Symbol:
    location = user_location(raw.stack) if raw.stack else None
    collided = raw.is_collision if raw.is_collision is not None else _was_moved(raw)
    return Symbol(raw.name, raw.short, raw.sources, raw.hint, raw.low, raw.high, collided, raw.value, location)


def _was_moved(raw: RawSymbol) -> bool:
    """Return whether the number in a symbol's name is not torch's hash of its source, because that number was in use."""
    match = _NAME.match(raw.name)
    if match is None or not raw.sources:
        return False
    return int(match["number"]) != int(hashlib.sha256(raw.sources[0].encode()).hexdigest(), 16) % _TORCH
