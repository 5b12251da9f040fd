"""Read what a `ShapeEnv` knows of its symbols; only `holds` evaluates an expression, which can add a guard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.shapes.symbol_ids import allocated_sources
from dynx._torch.tracing.render import short_names
from dynx._torch.tracing.stack import RawFrame, of_summaries


class RawSymbol(NamedTuple):
    """A symbol of a `ShapeEnv` as text, and the stack of the line that specialized it to one value."""

    name: str
    short: str  # as it is displayed
    sources: tuple[str, ...]  # more than one if duck shaping gave equal sizes one symbol
    hint: str | None
    low: str
    high: str
    value: str | None  # its replacement: one value, or an expression of other symbols
    stack: tuple[RawFrame, ...]  # of the line that specialized it; empty if torch did not keep it
    is_collision: bool | None  # whether the number that its source hashes to was in use; None if torch allocated the number


def is_fixed(symbol: RawSymbol) -> bool:
    """Return whether a symbol was specialized to one integer."""
    return symbol.value is not None and symbol.value.lstrip("-").isdigit()


def shape_env_of(target: Any) -> Any | None:
    """Return the `ShapeEnv` of a `FakeTensorMode` or a `GraphModule` with fake tensors, or `target` if it is one; else None."""
    if hasattr(target, "var_to_sources") and hasattr(target, "unique_ids"):
        return target
    if getattr(target, "shape_env", None) is not None:
        return target.shape_env
    for node in getattr(getattr(target, "graph", None), "nodes", ()):
        value = node.meta.get("example_value", node.meta.get("val"))
        shape_env = shape_env_in(value if isinstance(value, (tuple, list)) else (value,))
        if shape_env is not None:
            return shape_env
    return None


def shape_env_in(values: Iterable[Any]) -> Any | None:
    """Return the `ShapeEnv` of the first fake tensor or symbolic number among some values; None if there is none."""
    for value in values:
        holder = getattr(value, "fake_mode", None) or getattr(value, "node", None)
        if (shape_env := getattr(holder, "shape_env", None)) is not None:
            return shape_env
    return None


def known_size(size: Any) -> int:
    """Return a size as an int: for a symbolic size its hint, the value in the call being compiled; 0 for an unbacked size.

    Torch: `SymNode.expr` and `ShapeEnv.backed_var_to_val`. No guard is added.
    """
    if type(size) is int:
        return size
    value = size.node.expr.xreplace(size.node.shape_env.backed_var_to_val)
    return int(value) if value.is_number else 0


def holds(condition: Any) -> bool:
    """Return whether a comparison of sizes is true; add a guard if this is not statically known.

    Return False if it has unbacked symbols and is not statically known.
    """
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

    return statically_known_true(condition) or (not free_unbacked_symbols(condition) and bool(condition))


def symbols_in(shape_env: Any) -> Iterator[RawSymbol]:
    """Yield the symbols of a `ShapeEnv` that have a source, in the order of their creation.

    Torch: `ShapeEnv.var_to_sources`, `backed_var_to_val`, `var_to_range`, `replacements` and `specialization_stacks`. They are
    read, never evaluated: that could add guards.
    """
    allocated = allocated_sources(shape_env)
    stacks = {guard_source(source): stack for source, stack in shape_env.specialization_stacks.items()}
    for symbol, sources in shape_env.var_to_sources.items():
        names = tuple(map(guard_source, sources))
        bounds = shape_env.var_to_range.get(symbol)
        hint, value = shape_env.backed_var_to_val.get(symbol), shape_env.replacements.get(symbol)
        yield RawSymbol(
            str(symbol),
            short_names(str(symbol), shape_env),
            names,
            None if hint is None else str(hint),
            str(bounds.lower) if bounds is not None else "",
            str(bounds.upper) if bounds is not None else "",
            None if value is None else short_names(str(value), shape_env),
            next((of_summaries(stacks[name]) for name in names if name in stacks), ()),
            next((allocated[name] for name in names if name in allocated), None),
        )
