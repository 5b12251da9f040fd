"""Advice rules DX4xx: graphs that torch could not store in a compile cache on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dynx.advice.rule import Rule
from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.observed import CacheEvent

FX_GRAPH = Rule("DX401", "the compiled kernels are not cached on disk")
AOT_AUTOGRAD = Rule("DX402", "the autograd cache is bypassed")
RULES = (FX_GRAPH, AOT_AUTOGRAD)
_OF_CACHE = {
    "fx_graph": (FX_GRAPH, "implement uuid() in the custom pass, or remove what has no cache key"),
    "aot_autograd": (AOT_AUTOGRAD, "use plain torch operations or a custom_op"),
}


def find(events: Iterable[CacheEvent], compiles: Iterable[Compile]) -> tuple[Finding, ...]:
    """Return one finding for each function whose graph bypassed a cache; its cost is the compile time of the backend.

    Every new process spends this time again. A graph that the FX graph cache cannot store is not stored by AOTAutograd's cache
    either, so the FX graph cache is reported first.
    """
    by_key = {compile.key: compile for compile in compiles}
    merged: dict[tuple[str, int], Finding] = {}
    for event in sorted(events, key=lambda event: event.cache != "fx_graph"):
        compile = by_key.get((event.generation, event.id))
        location = event.location or (compile.location if compile is not None else None)
        if event.result != "bypass" or location is None or event.cache not in _OF_CACHE:
            continue
        reason = event.reason or "torch gives no reason"
        key = (location.file, location.line)
        if finding := merged.get(key):
            evidence = finding.evidence if reason in finding.evidence else (*finding.evidence, reason)
            merged[key] = replace(finding, count=finding.count + event.count, evidence=evidence)
        else:
            seconds = compile.phases.get("backend", 0.0) if compile is not None else 0.0
            rule, advice = _OF_CACHE[event.cache]
            merged[key] = Finding(rule.id, f"not cached on disk: {reason}", location, seconds, (reason,), advice, event.count)
    return tuple(merged.values())
