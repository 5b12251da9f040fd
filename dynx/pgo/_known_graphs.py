"""Choose among the graphs that earlier runs compiled, and find sizes that were dynamic although every graph specialized them.

A process finds a graph in the caches on disk only if the same sizes are dynamic as when the graph was stored. With a profile,
torch makes every size dynamic that ever had two values, and so may trace a graph that no run has compiled: a loop over
`x.size(0)` specializes the size to each value in turn, and `x[:, :16]` has a separate graph for a width of 16. Therefore a
profile stores which sizes were static or dynamic in each graph of a function; a call that fits a stored graph is traced with
the same sizes dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from dynx._bytecode.safe_read import sizes
from dynx._torch.shapes.known_sizes import CodeKey
from dynx._torch.shapes.size_choice import Traced
from dynx._torch.shapes.size_updates import RawUpdate
from dynx._torch.shapes.symbol_facts import RawSymbol, is_fixed
from dynx.records.profile import DYNAMIC, Graph, GraphSize

Place = tuple[str, int | None]  # source and dim

_MARKED, _STATIC = True, False
_MAX_STATIC = 3  # graphs with static sizes of a function; torch gives up after eight


def graph_of(updates: Iterable[RawUpdate], symbols: Iterable[RawSymbol]) -> Graph:
    """Return which sizes are static or dynamic in a graph, except sizes that `mark_dynamic` or `dynamic=True` makes dynamic."""
    symbol_of = {source: symbol for symbol in symbols for source in symbol.sources}
    latest = {update.source: update for update in updates}
    found = (size for update in latest.values() for size in _sizes_of(update, symbol_of))
    return tuple(sorted(found, key=lambda size: (size.source, -1 if size.dim is None else size.dim)))


def _sizes_of(update: RawUpdate, symbol_of: Mapping[str, RawSymbol]) -> Iterator[GraphSize]:
    known = dict(update.known.dims())
    for dim, value in update.now.dims():
        if value is None or value == DYNAMIC:
            continue  # a symbol of an outer trace
        name = symbol_name(update.source, dim)
        if known.get(dim) == DYNAMIC or (dim is not None and update.known.size == DYNAMIC):
            yield GraphSize(update.source, dim, _MARKED, *_range(value, symbol_of.get(name)))
        elif name not in symbol_of:  # otherwise `mark_dynamic` or `dynamic=True` overrides what torch learned
            yield GraphSize(update.source, dim, _STATIC, value, value)


def _range(value: int | float | str, symbol: RawSymbol | None) -> tuple[int | float | str | None, int | float | str | None]:
    if symbol is None:
        return (value, value) if value in (0, 1) else (None, None)  # torch has no symbols for sizes 0 and 1
    if is_fixed(symbol):
        return value, value
    return _bound(symbol.low), _bound(symbol.high)


def _bound(text: str) -> int | None:
    """Convert a bound that torch wrote as text to an int; return None for infinity and for anything but an int."""
    return int(text) if text.lstrip("-").isdigit() and len(text) < 19 else None


def symbol_name(source: str, dim: int | None) -> str:
    """Return the source of the symbol for a size: `L['x'].size()[0]`."""
    return source if dim is None else f"{source}.size()[{dim}]"


def chooser(graphs: Mapping[CodeKey, tuple[Graph, ...]]) -> Callable[[Traced], Graph | None]:
    """Return a function that chooses a stored graph for a call: the call is traced with the same sizes dynamic as that graph.

    Of the stored graphs that fit the sizes of the call, the function returns the one with most symbols; if none fits, None.

    A size of the call may be exactly the bound of a comparison in the program, as a width of 16 is for `x[:, :16]`: the trace
    may then take another branch than the stored graph. A graph in which no size has this problem is preferred.

    Of the graphs in which a size that changes between calls is static, at most `_MAX_STATIC` per function are chosen: otherwise
    a process with many values of that size would compile one graph for each, up to the recompile limit.
    """
    dynamic = {key: (_marked(known) | _changing(known)) - needless(known) for key, known in graphs.items()}
    returned: dict[CodeKey, set[Graph]] = {key: set() for key in graphs}  # graphs with a static size that changes

    def choose(traced: Traced) -> Graph | None:
        key, known = traced.key, graphs.get(traced.key, ())
        values = {source: sizes(source, traced.locals, traced.globals) for graph in known for source, *_ in graph}
        fitting = [graph for graph in known if all(_admits(size, values[size.source]) for size in graph)]
        # graphs with more symbols come first, and `min` returns the first minimum
        best = min(fitting, key=lambda graph: any(_is_limit(size, values[size.source]) for size in graph), default=None)
        if best is None or not _static(best) & dynamic[key]:
            return best
        if best not in returned[key] and len(returned[key]) == _MAX_STATIC:
            return None
        returned[key].add(best)
        return best

    return choose


def _admits(size: GraphSize, sizes: tuple[int, ...] | float | None) -> bool:
    if sizes is None:
        return True  # the value cannot be read before tracing
    value = _value(size, sizes)
    return value is not None and size.admits(value)


def _is_limit(size: GraphSize, sizes: tuple[int, ...] | float | None) -> bool:
    value = None if sizes is None else _value(size, sizes)
    return value is not None and size.is_limit(value)


def _value(size: GraphSize, sizes: tuple[int, ...] | float) -> float | None:
    if isinstance(sizes, tuple):
        return sizes[size.dim] if size.dim is not None and size.dim < len(sizes) else None
    return sizes if size.dim is None else None


def needless(graphs: Iterable[Graph]) -> set[Place]:
    """Return the useless dynamic sizes that can be made static without a new compilation.

    A dynamic size is useless if every graph specialized it to one value, else useful. A useless size can be made static if it
    is static in a stored graph in which all useful sizes are dynamic.
    """
    graphs = tuple(graphs)
    useful = _useful(graphs)
    without = [_static(graph) for graph in graphs]
    return (_marked(graphs) - useful) & set().union(*(places for places in without if not places & useful))


def always_fixed(graphs: Iterable[Graph]) -> set[Place]:
    """Return the useless dynamic sizes (see `needless`) that cannot be made static without a new compilation."""
    graphs = tuple(graphs)
    return _marked(graphs) - _useful(graphs) - needless(graphs)


def _marked(graphs: Iterable[Graph]) -> set[Place]:
    return {(size.source, size.dim) for graph in graphs for size in graph if size.marked}


def _changing(graphs: Iterable[Graph]) -> set[Place]:
    """Return the sizes that have different values in different graphs, as when several processes compiled static graphs."""
    values: dict[Place, set[object]] = {}
    for graph in graphs:
        for size in graph:
            values.setdefault((size.source, size.dim), set()).add(size.low)
    return {place for place, different in values.items() if len(different) > 1}


def _useful(graphs: Iterable[Graph]) -> set[Place]:
    return {(size.source, size.dim) for graph in graphs for size in graph if size.marked and not size.is_fixed}


def _static(graph: Graph) -> set[Place]:
    return {(size.source, size.dim) for size in graph if not size.marked}
