"""DX4xx: a graph that torch could not keep on disk."""

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
    "fx_graph": (FX_GRAPH, "give the custom pass a uuid(), or drop what has no key"),
    "aot_autograd": (AOT_AUTOGRAD, "use plain torch operations or a custom_op"),
}


def find(events: Iterable[CacheEvent], compiles: Iterable[Compile]) -> tuple[Finding, ...]:
    """Give one finding per function; the cost is what every new process pays again: the backend's seconds.

    AOTAutograd's cache asks the FX graph cache first, so what that cannot keep it cannot either.
    """
    by_key = {compile.key: compile for compile in compiles}
    merged: dict[tuple[object, ...], Finding] = {}
    for each in sorted(events, key=lambda event: event.cache != "fx_graph"):
        compile = by_key.get((each.generation, each.id))
        location = each.location or (compile.location if compile is not None else None)
        if each.result != "bypass" or location is None or each.cache not in _OF_CACHE:
            continue
        reason = each.reason or "torch gives no reason"
        key = (location.file, location.line)
        if known := merged.get(key):
            evidence = known.evidence if reason in known.evidence else (*known.evidence, reason)
            merged[key] = replace(known, count=known.count + each.count, evidence=evidence)
        else:
            seconds = compile.phases.get("backend", 0.0) if compile is not None else 0.0
            rule, advice = _OF_CACHE[each.cache]
            merged[key] = Finding(rule.id, f"not cached on disk: {reason}", location, seconds, (reason,), advice, each.count)
    return tuple(merged.values())
