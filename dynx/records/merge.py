"""The same thing seen several times becomes one record with a count."""

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


def break_states(found: Iterable[BreakState]) -> tuple[BreakState, ...]:
    """Keep the fullest state of each cause."""
    return _merge(found, lambda each: each.cause, lambda a, b: max(a, b, key=lambda each: len(each.frames)))


def gave_up(found: Iterable[GaveUp]) -> tuple[GaveUp, ...]:
    """A function gives up once; threads that reach the limit at the same time each tell."""
    return _merge(found, lambda each: (each.generation, each.id.rpartition("/")[0]), lambda a, b: a)


def skipped(found: Iterable[Skipped]) -> tuple[Skipped, ...]:
    return _counted(found, lambda each: (each.location, each.reason))


def cudagraph_skips(found: Iterable[Skip]) -> tuple[Skip, ...]:
    return _counted(found, lambda each: (each.reason, each.location))


def caches(found: Iterable[CacheEvent]) -> tuple[CacheEvent, ...]:
    return _counted(found, lambda each: (each.cache, each.result, each.generation, each.id, each.reason))


def warnings(found: Iterable[TorchWarning]) -> tuple[TorchWarning, ...]:
    return _counted(found, lambda each: (each.text, each.origin))


def troubles(found: Iterable[Trouble]) -> tuple[Trouble, ...]:
    return _counted(found, lambda each: (each.what, each.why))


def lines(found: Iterable[LineCost]) -> tuple[LineCost, ...]:
    """Sum a line over the compilations that traced it, most expensive first."""
    merged = _merge(found, lambda each: (each.location.file, each.location.line, each.location.function), _sum)
    return tuple(sorted(merged, key=lambda each: -each.seconds))


def _sum(one: LineCost, other: LineCost) -> LineCost:
    return replace(
        one,
        instructions=one.instructions + other.instructions,
        seconds=one.seconds + other.seconds,
        cumulative=one.cumulative + other.cumulative,
        nodes=one.nodes + other.nodes,
        guards=tuple(dict.fromkeys(one.guards + other.guards)),
        shape_guards=one.shape_guards + other.shape_guards,
        exceptions=one.exceptions + other.exceptions,
    )


def _counted(found: Iterable[C], key: Callable[[C], Hashable]) -> tuple[C, ...]:
    return _merge(found, key, lambda a, b: replace(a, count=a.count + b.count))


def _merge(found: Iterable[T], key: Callable[[T], Hashable], join: Callable[[T, T], T]) -> tuple[T, ...]:
    merged: dict[Hashable, T] = {}
    for each in found:
        known = merged.get(key(each))
        merged[key(each)] = each if known is None else join(known, each)
    return tuple(merged.values())
