"""Merging: records of the same thing become one record with a count."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import TypeVar

from dynx.records.compile import GaveUp, Skipped
from dynx.records.cudagraphs import Skip
from dynx.records.graph_break import GraphBreak
from dynx.records.observed import CacheEvent, TorchWarning, Trouble
from dynx.records.post_mortem import BreakState
from dynx.records.recompile import Reason, Recompile
from dynx.records.timeline import LineCost

T = TypeVar("T")
C = TypeVar("C", Skipped, Skip, CacheEvent, TorchWarning, Trouble)


def recompiles(records: Iterable[Recompile]) -> tuple[Recompile, ...]:
    """Keep every recompile, and add to each reason the advice rule that applies."""
    from dynx.advice import rule_of_reason

    def with_rule(reason: Reason) -> Reason:
        return replace(reason, rule=rule_of_reason(reason))

    return tuple(replace(recompile, reasons=tuple(map(with_rule, recompile.reasons))) for recompile in records)


def graph_breaks(records: Iterable[GraphBreak]) -> tuple[GraphBreak, ...]:
    """Merge breaks of one cause, and add to each the advice rule that applies.

    A break that cannot be resumed is kept, since it costs most, and then the longest call chain, which shows how the user's
    code got there.
    """
    from dynx.advice import rule_of_break

    def join(a: GraphBreak, b: GraphBreak) -> GraphBreak:
        return replace(
            max(a, b, key=lambda graph_break: (not graph_break.resumable, len(graph_break.chain))),
            count=a.count + b.count,
            resumable=a.resumable and b.resumable,
            compiles=a.compiles + tuple(key for key in b.compiles if key not in a.compiles),
        )

    merged = _merge(records, lambda graph_break: graph_break.cause, join)
    return tuple(replace(graph_break, rule=rule_of_break(graph_break)) for graph_break in merged)


def break_states(records: Iterable[BreakState]) -> tuple[BreakState, ...]:
    """Keep the state with most frames of each cause."""
    return _merge(records, lambda state: state.cause, lambda a, b: max(a, b, key=lambda state: len(state.frames)))


def gave_up(records: Iterable[GaveUp]) -> tuple[GaveUp, ...]:
    """Keep one record per function: threads that reach the limit at the same time record it several times."""
    return _merge(records, lambda record: (record.generation, record.id.rpartition("/")[0]), lambda a, b: a)


def skipped(records: Iterable[Skipped]) -> tuple[Skipped, ...]:
    """Count how often a function was skipped for one reason."""
    return _counted(records, lambda record: (record.location, record.reason))


def cudagraph_skips(records: Iterable[Skip]) -> tuple[Skip, ...]:
    """Count how often a line ran uncaptured for one reason."""
    return _counted(records, lambda record: (record.reason, record.location))


def caches(records: Iterable[CacheEvent]) -> tuple[CacheEvent, ...]:
    """Count the equal results of one compilation."""
    return _counted(records, lambda record: (record.cache, record.result, record.generation, record.id, record.reason))


def warnings(records: Iterable[TorchWarning]) -> tuple[TorchWarning, ...]:
    """Count the equal warnings of one origin."""
    return _counted(records, lambda record: (record.text, record.origin))


def troubles(records: Iterable[Trouble]) -> tuple[Trouble, ...]:
    """Count the equal failures."""
    return _counted(records, lambda record: (record.what, record.why))


def lines(records: Iterable[LineCost]) -> tuple[LineCost, ...]:
    """Sum the cost of each line over the compilations that traced it, most expensive first."""
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


def _counted(records: Iterable[C], key: Callable[[C], Hashable]) -> tuple[C, ...]:
    return _merge(records, key, lambda a, b: replace(a, count=a.count + b.count))


def _merge(records: Iterable[T], key: Callable[[T], Hashable], join: Callable[[T, T], T]) -> tuple[T, ...]:
    """Join the records of one key, in the order in which the keys were first seen."""
    merged: dict[Hashable, T] = {}
    for record in records:
        known = merged.get(key(record))
        merged[key(record)] = record if known is None else join(known, record)
    return tuple(merged.values())
