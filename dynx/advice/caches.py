"""DX4xx: a graph that torch could not keep on disk."""

from __future__ import annotations

from collections.abc import Iterable

from dynx.advice.rule import Rule
from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.observed import CacheEvent

FX_GRAPH = Rule("DX401", "the FX graph cache is bypassed")
AOT_AUTOGRAD = Rule("DX402", "the AOTAutograd cache is bypassed")
RULES = (FX_GRAPH, AOT_AUTOGRAD)
_OF_CACHE = {"fx_graph": FX_GRAPH, "aot_autograd": AOT_AUTOGRAD}


def find(events: Iterable[CacheEvent], compiles: Iterable[Compile]) -> tuple[Finding, ...]:
    """Give one finding per cache and function; the cost is what every new process pays again: the backend's seconds."""
    by_key = {compile.key: compile for compile in compiles}
    merged: dict[tuple[object, ...], Finding] = {}
    for each in events:
        compile = by_key.get((each.generation, each.id))
        rule = _OF_CACHE.get(each.cache)
        location = each.location or (compile.location if compile is not None else None)
        if each.result != "bypass" or rule is None or location is None:
            continue
        seconds = compile.phases.get("backend", 0.0) if compile is not None else 0.0
        reason = each.reason or "torch gives no reason"
        key = (rule.id, location.file, location.line)
        known = merged.get(key)
        if known is None:
            merged[key] = Finding(
                rule.id,
                f"not cached on disk: {reason}",
                location,
                seconds,
                (reason,),
                f"remove what cannot be cached; dynx rule {rule.id}",
                each.count,
            )
        elif reason not in known.evidence:
            merged[key] = Finding(
                rule.id,
                known.title,
                location,
                known.seconds,
                (*known.evidence, reason),
                known.advice,
                known.count + each.count,
            )
    return tuple(merged.values())
