"""The guards and the graph of each compilation, for `watch(detail="full")`.

No object of torch is kept: guards are read when the compilation ends, the graph when Dynamo passes it to the backend.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from dynx._handle import Handle
from dynx._reading.user_location import named, user_location
from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.tracing.graph_code import RawCodeLine, watch_graphs
from dynx._torch.tracing.stack import RawFrame
from dynx._torch.tracing.translator import TraceId
from dynx._trace.dispatch import CompileEnd, emit
from dynx._trace.guards.records import read_guard
from dynx._trace.guards.requests import by_short_source, lines_for
from dynx.errors import UnsupportedTorch
from dynx.records import Location, Record, Trouble
from dynx.records.detail import CompiledGuards, GraphCode
from dynx.records.location import CodeLine

# A record is one line of the run file, of which at most 8 MiB are read: three thousand guards take 2.5 MB.
_MAX_GUARDS = 3000  # per compilation; six layers of a transformer have 1,200
_MAX_REQUESTERS = 4  # lines that requested one guard; every layer requests a guard on a module that all layers use
_MAX_TEXT = 500  # characters of a guard: about 200 for a tensor, any number for a text constant
_MAX_CODE = 200_000  # characters of a graph's code; six layers of a transformer take 55,000


class CompileDetails(Handle):
    """A recorder that, when a compilation ends, calls `record` with the guards and the graph code of that compilation.

    Its `on_end` must be passed to `bus.listen`.
    """

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self._graphs: dict[str, list[RawCodeLine]] = {}  # by compile id, until the compilation ends; text only
        self._graph_watch: Handle | None = None
        try:
            self._graph_watch = watch_graphs(self._on_graph, lambda hook, error: emit(_trouble(error)))
        except UnsupportedTorch as error:
            record(_trouble(error))  # the watch does not listen to the bus yet

    def remove(self) -> None:
        if self._graph_watch is not None:
            self._graph_watch.remove()

    def on_end(self, end: CompileEnd) -> None:
        """Record the guards and the graph code of a compilation that has ended with compiled code."""
        code = self._graphs.pop(end.id, None)
        if end.guards is None:
            return
        if code is not None:
            self._record(GraphCode(end.generation, end.id, end.location, *code_records(code)))
        self._record(_compiled_guards(end))

    def _on_graph(self, trace: TraceId, code: list[RawCodeLine]) -> None:
        self._graphs[trace.compile_id] = code  # the last attempt counts


def _compiled_guards(end: CompileEnd) -> CompiledGuards:
    requests = by_short_source(end.requests)

    @cache  # several guards check the same value
    def requesters(source: str) -> tuple[Location, ...]:
        return tuple(map(named, lines_for(source, requests, None)[:_MAX_REQUESTERS]))

    texts = [(guard.type, text) for node in tree_of(end.guards).walk() for guard in node.guards for text in guard.texts]
    guards = tuple(read_guard(kind, text, end.code, requesters, max_length=_MAX_TEXT) for kind, text in texts[:_MAX_GUARDS])
    return CompiledGuards(end.generation, end.id, end.location, guards, len(texts) - len(guards))


def code_records(code: list[RawCodeLine]) -> tuple[tuple[CodeLine, ...], int]:
    """Return the lines of a graph's code, each with its line of user code, and how many lines the size limit left out."""

    @cache  # consecutive nodes come from one line
    def location(stack: tuple[RawFrame, ...]) -> Location | None:
        found = user_location(stack) if stack else None
        return named(found) if found is not None else None

    lines: list[CodeLine] = []
    room = _MAX_CODE
    for text, stack in code:
        room -= len(text)
        if room < 0:
            break
        lines.append(CodeLine(text, location(stack)))
    return tuple(lines), len(code) - len(lines)


def _trouble(error: BaseException) -> Trouble:
    return Trouble("graph code", f"{type(error).__name__}: {error}")
