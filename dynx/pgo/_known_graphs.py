"""Graphs that earlier runs compiled: which of them a call can have again, and which sizes were dynamic in them for nothing.

A second process finds a graph in the caches on disk only if the same sizes are dynamic in it as before. torch begins with every
size dynamic that ever had two values, and with that may ask for a graph that no run has compiled: a loop over `x.size(0)` fixes
it to each value in turn, `x[:, :16]` has a graph of its own for a width of 16. So a profile keeps with which sizes the graphs
of a function were compiled, and a call that one of them fits is traced with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from dynx._reading.safe_read import sizes
from dynx._torch.shapes.known_sizes import CodeKey
from dynx._torch.shapes.size_choice import Traced
from dynx._torch.shapes.size_updates import RawUpdate
from dynx._torch.shapes.symbol_facts import RawSymbol, is_fixed
from dynx.records.profile import DYNAMIC, Graph, GraphSize

Place = tuple[str, int | None]  # source and dim

_MARKED, _STATIC = True, False
_MAX_STATIC = 3  # graphs of a function; torch gives up after eight


def graph_of(updates: Iterable[RawUpdate], symbols: Iterable[RawSymbol]) -> Graph:
    """Return with which sizes a graph was compiled, without those that the program marked as dynamic itself."""
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
        elif name not in symbol_of:  # else `mark_dynamic` or `dynamic=True` comes before what torch learns
            yield GraphSize(update.source, dim, _STATIC, value, value)


def _range(value: int | float | str, symbol: RawSymbol | None) -> tuple[int | float | str | None, int | float | str | None]:
    if symbol is None:
        return (value, value) if value in (0, 1) else (None, None)  # torch has no symbols for sizes 0 and 1
    if is_fixed(symbol):
        return value, value
    return _bound(symbol.low), _bound(symbol.high)


def _bound(text: str) -> int | None:
    """Return a bound as torch writes it; None for infinity, and for one that is no int."""
    return int(text) if text.lstrip("-").isdigit() and len(text) < 19 else None


def symbol_name(source: str, dim: int | None) -> str:
    """Return the source of the symbol for a size: `L['x'].size()[0]`."""
    return source if dim is None else f"{source}.size()[{dim}]"


def chooser(graphs: Mapping[CodeKey, tuple[Graph, ...]]) -> Callable[[Traced], Graph | None]:
    """Return a function that returns the graph to trace again: of those that fit the call the one with the most symbols.

    Where a comparison of the program has one of the values as its limit, a trace may take the other branch: of `x[:, :16]` with
    a width of 16. Then a graph without such a limit is better.

    Of graphs in which a size is static that is dynamic in others, a few of each function are returned: a process that calls it
    with many of these values would compile as many graphs, up to torch's limit of recompiles.
    """
    dynamic = {key: (_marked(known) | _changing(known)) - needless(known) for key, known in graphs.items()}
    returned: dict[CodeKey, set[Graph]] = {key: set() for key in graphs}  # of those with a static size

    def choose(traced: Traced) -> Graph | None:
        key, known = traced.key, graphs.get(traced.key, ())
        values = {source: sizes(source, traced.locals, traced.globals) for graph in known for source, *_ in graph}
        fitting = [graph for graph in known if all(_admits(size, values[size.source]) for size in graph)]
        # the one with the most symbols comes first, and `min` returns the first
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
        return True  # cannot be read before it is traced
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
    """Return the sizes that a line fixed wherever they were dynamic, and without which a graph was compiled.

    In that graph all sizes are dynamic that are of use. Without such a graph the next process would compile it anew.
    """
    graphs = tuple(graphs)
    useful = _useful(graphs)
    without = [_static(graph) for graph in graphs]
    return (_marked(graphs) - useful) & set().union(*(places for places in without if not places & useful))


def always_fixed(graphs: Iterable[Graph]) -> set[Place]:
    """Return the sizes that a line fixed wherever they were dynamic, although no graph was compiled without them."""
    graphs = tuple(graphs)
    return _marked(graphs) - _useful(graphs) - needless(graphs)


def _marked(graphs: Iterable[Graph]) -> set[Place]:
    return {(size.source, size.dim) for graph in graphs for size in graph if size.marked}


def _changing(graphs: Iterable[Graph]) -> set[Place]:
    """Return the sizes that are static with different values, as in graphs of several ranks."""
    values: dict[Place, set[object]] = {}
    for graph in graphs:
        for size in graph:
            values.setdefault((size.source, size.dim), set()).add(size.low)
    return {place for place, different in values.items() if len(different) > 1}


def _useful(graphs: Iterable[Graph]) -> set[Place]:
    return {(size.source, size.dim) for graph in graphs for size in graph if size.marked and not size.is_fixed}


def _static(graph: Graph) -> set[Place]:
    return {(size.source, size.dim) for size in graph if not size.marked}
