"""Records that `watch(detail="full")` adds for each compilation: its guards, and the code of its graph.

A run file is where dynx saves the records of a run, by default `.dynx/last.dynx`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynx.records.cache import GuardInfo
from dynx.records.location import CodeLine, Location
from dynx.records.record import OfCompile, Record
from dynx.records.table import Cell, Function, Line, Source, Value

_SHOWN_GUARDS = 12  # guards of a compilation on a terminal, as many as `dynx guards` shows for a cache entry
_SHOWN_LINES = 40  # lines of a graph on a terminal: one screen


@dataclass(frozen=True, slots=True)
class CompiledGuards(OfCompile, Record):
    """The guards of one compilation: the conditions under which its code may run.

    A guard of torch may have several items in `guards`, such as one for each comparison of sizes, so there may be more items
    than `Compile.guards` counts. A run file keeps a limited number of items; `omitted` counts those not saved.
    """

    generation: int
    id: str  # compile id, "0/1"
    location: Location  # first line of the function
    guards: tuple[GuardInfo, ...]
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class GraphCode(OfCompile, Record):
    """The graph of one compilation as Python code, as Dynamo passes it to the backend.

    The bodies of higher-order operators (`cond`, `checkpoint`) are separate graphs and are not listed. A run file keeps a
    limited number of lines; `omitted` counts those that were not saved.
    """

    generation: int
    id: str  # compile id, "0/1"
    location: Location  # first line of the function
    lines: tuple[CodeLine, ...]
    omitted: int = 0

    @property
    def code(self) -> str:
        """The code of the graph as one string."""
        return "\n".join(line.text for line in self.lines)


def guard_cells(compiled: CompiledGuards) -> Iterable[tuple[Cell, ...]]:
    """Yield the table rows of a compilation's guards, and one row for the number of guards that were not saved."""
    for guard in compiled.guards:
        yield compiled.id, Value(guard.source), guard.expected or "", guard.kind, guard.location
    if compiled.omitted:
        yield compiled.id, f"and {compiled.omitted} more, not saved", "", "", None


def guard_lines(compiled: CompiledGuards) -> Iterable[Line]:
    """Yield the terminal lines of a compilation's guards: a title, the first guards on values, and how many more there are."""
    total = len(compiled.guards) + compiled.omitted
    yield Line(compiled.id, (Function(compiled.location), f"{total} guards"))
    on_values = sorted((guard for guard in compiled.guards if guard.is_on_value), key=lambda guard: guard.is_on_library)
    shown = on_values[:_SHOWN_GUARDS]
    for guard in shown:
        expected = (guard.expected,) if guard.expected else ()
        yield Line("", (Value(guard.source), *expected, f"({guard.kind})", *((guard.location,) if guard.location else ())))
    if total > len(shown):
        yield Line("", (f"and {total - len(shown)} more",))


def code_cells(graph: GraphCode) -> Iterable[tuple[Cell, ...]]:
    """Yield the table row of a graph, with its whole code."""
    yield graph.id, Function(graph.location), _source(graph, len(graph.lines))


def code_lines(graph: GraphCode) -> Iterable[Line]:
    """Yield what the terminal shows of a graph: a title, and the first lines of its code."""
    yield Line(graph.id, (Function(graph.location),))
    yield Line("", (_source(graph, _SHOWN_LINES),))


def _source(graph: GraphCode, shown: int) -> Source:
    lines = [(line.text, line.location) for line in graph.lines[:shown]]
    more = len(graph.lines) + graph.omitted - len(lines)
    return Source((*lines, *(((f"… {more} more lines", None),) if more else ())))
