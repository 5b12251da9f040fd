"""Merge records of the same event into one record, with a count where that is of interest."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from dynx.records.compile import GaveUp, Skipped
from dynx.records.comptime import BreakState, LineCost
from dynx.records.cudagraphs import Skip
from dynx.records.graph_break import GraphBreak
from dynx.records.observed import CacheEvent, TorchWarning, Trouble
from dynx.records.record import frame_id

T = TypeVar("T")
C = TypeVar("C", Skipped, Skip, CacheEvent, TorchWarning, Trouble)


def graph_breaks(records: Iterable[GraphBreak]) -> tuple[GraphBreak, ...]:
    """Merge graph breaks with the same cause (file, line and kind).

    The merged record shows a break after which Dynamo could not resume, if there is one, since that costs most; otherwise the
    break with the longest call stack.
    """

    def join(a: GraphBreak, b: GraphBreak) -> GraphBreak:
        return replace(
            max(a, b, key=lambda graph_break: (not graph_break.resumable, len(graph_break.chain))),
            count=a.count + b.count,
            resumable=a.resumable and b.resumable,
            compiles=a.compiles + tuple(key for key in b.compiles if key not in a.compiles),
        )

    return _merge(records, lambda graph_break: graph_break.cause, join)


def break_states(records: Iterable[BreakState]) -> tuple[BreakState, ...]:
    """Keep one `BreakState` for each cause of a graph break: the state with the most frames."""
    return _merge(records, lambda state: state.cause, lambda a, b: max(a, b, key=lambda state: len(state.frames)))


def gave_up(records: Iterable[GaveUp]) -> tuple[GaveUp, ...]:
    """Keep one `GaveUp` record per function, since threads that reach the recompile limit together each emit one."""
    return _merge(records, lambda record: (record.generation, frame_id(record.id)), lambda a, b: a)


def counted(*names: str) -> Callable[[Iterable[C]], tuple[C, ...]]:
    """Return a function that merges records with equal values in the fields `names`, and adds up their `count`."""
    key: Callable[[C], Hashable] = attrgetter(*names)
    return lambda records: _merge(records, key, lambda a, b: replace(a, count=a.count + b.count))


def lines(records: Iterable[LineCost]) -> tuple[LineCost, ...]:
    """Sum the tracing cost of each line over all compilations, and sort the lines, most expensive first."""
    merged = _merge(records, lambda line: (line.location.file, line.location.line, line.location.function), _sum)
    return tuple(sorted(merged, key=lambda line: -line.seconds))


def _sum(a: LineCost, b: LineCost) -> LineCost:
    return replace(
        a,
        instructions=a.instructions + b.instructions,
        seconds=a.seconds + b.seconds,
        cumulative=a.cumulative + b.cumulative,
        nodes=a.nodes + b.nodes,
        guards=tuple(dict.fromkeys(a.guards + b.guards)),
        shape_guards=a.shape_guards + b.shape_guards,
        exceptions=a.exceptions + b.exceptions,
    )


def _merge(records: Iterable[T], key: Callable[[T], Hashable], join: Callable[[T, T], T]) -> tuple[T, ...]:
    """Return one record per key, in the order in which the keys first occur; `join` merges two records with equal keys."""
    merged: dict[Hashable, T] = {}
    for record in records:
        known = merged.get(key(record))
        merged[key(record)] = record if known is None else join(known, record)
    return tuple(merged.values())
