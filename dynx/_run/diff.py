"""Compare two runs: a recompile or graph break is matched by its cause and its function or source text, not by line number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import get_args

from dynx.records.location import Location
from dynx.records.run_diff import COMPILING, CauseChange, CauseKind, RunDiff, RunTotal, Unit, Verdict
from dynx.records.run_records import RunRecords

_ORDER: tuple[CauseKind, ...] = get_args(CauseKind)  # the worst first


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """One cause of recompiles, graph breaks or similar costs in a run, and how often it occurred."""

    kind: CauseKind
    cause: str
    location: Location | None
    code: str = ""  # the source line
    count: int = 1
    seconds: float = 0.0
    rule: str | None = None

    @property
    def function(self) -> str:
        return self.location.own.function if self.location is not None else ""

    @property
    def file(self) -> str:
        return PurePath(self.location.own.file).name if self.location is not None else ""


def compare(before: RunRecords, after: RunRecords) -> RunDiff:
    """Return the differences between two runs."""
    causes = sorted(_changes(before, after), key=_rank)
    return RunDiff(tuple(_amounts(before, after)), tuple(causes), tuple(_notes(before, after)))


_VERDICTS: Mapping[Verdict, int] = {"new": 0, "more": 0, "gone": 1, "fewer": 1, "same": 2}


def _rank(change: CauseChange) -> tuple[int, int, float]:
    """Return a sort key: worse, better, then unchanged causes; then by kind, the worst first; then by seconds, most first."""
    seconds = max(change.seconds_before, change.seconds_after)
    return _VERDICTS[change.verdict], _ORDER.index(change.kind), -seconds


def _occurrences(run: RunRecords) -> Iterator[_Occurrence]:
    for compile in run.compiles:
        if compile.outcome == "failed":
            where = compile.failed_at or compile.location
            yield _Occurrence("failed", compile.reason or "torch gives no reason", where, compile.code, seconds=compile.seconds)
    for finding in run.findings:
        if finding.wrong:
            yield _Occurrence("wrong values", finding.title, finding.location, rule=finding.rule)
    for record in run.gave_up:
        yield _Occurrence("gave up", record.limit, record.location)
    for compile in run.eager:
        yield _Occurrence("runs eagerly", "a graph break that cannot be resumed", compile.location, seconds=compile.seconds)
    for recompile in run.recompiles:
        reason = next(iter(recompile.reasons), None)
        if reason is None:
            yield _Occurrence("recompile", "torch gives no reason", recompile.location, seconds=recompile.seconds)
        else:
            where = reason.location or recompile.location
            yield _Occurrence("recompile", reason.subject, where, reason.code, 1, recompile.seconds, reason.rule)
    for graph_break in run.graph_breaks:
        what = f"{graph_break.callee}()" if graph_break.callee else graph_break.reason
        yield _Occurrence("graph break", what, graph_break.location, graph_break.code, graph_break.count, rule=graph_break.rule)
    for skip in run.cudagraph_skips:
        yield _Occurrence("not captured", skip.reason, skip.location, count=skip.count)


_Key = tuple[str, ...]
_KEYS: tuple[Callable[[_Occurrence], _Key], ...] = (  # the most exact first; later keys match code that was moved or renamed
    lambda each: (each.kind, each.cause, each.function, each.file),
    lambda each: (each.kind, each.cause, each.function),
    lambda each: (each.kind, each.cause, each.code.strip()) if each.code else (),
)


def _changes(before: RunRecords, after: RunRecords) -> Iterator[CauseChange]:
    old, new = _grouped(_occurrences(before)), _grouped(_occurrences(after))
    for key in _KEYS:
        by_key = {key(occurrence): occurrence for occurrence in old.values()}
        for occurrence in list(new.values()):
            match = by_key.pop(key(occurrence), None) if key(occurrence) else None
            if match is not None:
                del old[_KEYS[0](match)], new[_KEYS[0](occurrence)]
                yield _change(match, occurrence)
    yield from (_change(occurrence, None) for occurrence in old.values())
    yield from (_change(None, occurrence) for occurrence in new.values())


def _grouped(occurrences: Iterable[_Occurrence]) -> dict[_Key, _Occurrence]:
    """Return one occurrence for each cause and function, with the counts and seconds added up."""
    groups: dict[_Key, _Occurrence] = {}
    for occurrence in occurrences:
        key = _KEYS[0](occurrence)
        known = groups.get(key)
        if known is not None:
            count, seconds = known.count + occurrence.count, known.seconds + occurrence.seconds
            occurrence = replace(known, count=count, seconds=seconds)
        groups[key] = occurrence
    return groups


def _change(before: _Occurrence | None, after: _Occurrence | None) -> CauseChange:
    shown = after or before
    assert shown is not None
    return CauseChange(
        shown.kind,
        shown.function,
        shown.cause,
        before.count if before is not None else 0,
        after.count if after is not None else 0,
        before.seconds if before is not None else 0.0,
        after.seconds if after is not None else 0.0,
        shown.rule,
        shown.location,
    )


def _amounts(before: RunRecords, after: RunRecords) -> Iterator[RunTotal]:
    """Yield the compile time, and the other totals that are not 0 in at least one of the runs."""
    later = _totals(after)
    for name, (amount, unit, is_cost) in _totals(before).items():
        if amount or later[name][0] or name == COMPILING:
            yield RunTotal(name, amount, later[name][0], unit, is_cost)


def _totals(run: RunRecords) -> Mapping[str, tuple[float, Unit, bool]]:
    """Return totals of a run by name: the amount, its unit, and whether less of it is better."""
    counts = {
        "compiles": len(run.compiles),
        "recompiles": len(run.recompiles),
        "graph breaks": len(run.graph_breaks),
        "functions that gave up": len(run.gave_up),
        "functions that run eagerly": len(run.eager),
        "failed compiles": sum(compile.outcome == "failed" for compile in run.compiles),
        "guards": sum(compile.guards or 0 for compile in run.compiles),
        "nodes": sum(compile.nodes or 0 for compile in run.compiles),
        "cache misses": sum(event.count for event in run.caches if event.result == "miss"),
        "cache hits": sum(event.count for event in run.caches if event.result == "hit"),
        "CUDA graphs": len(run.cudagraphs),
    }
    neutral = ("nodes", "cache hits", "CUDA graphs", "compiles")
    totals: dict[str, tuple[float, Unit, bool]] = {COMPILING: (run.compile_seconds, "seconds", True)}
    totals |= {f"  in {name}": (seconds, "seconds", True) for name, seconds in _phases(run).items()}
    totals["the whole run"] = run.seconds, "seconds", True
    totals |= {name: (count, "count", name not in neutral) for name, count in counts.items()}
    totals["saved for backward"] = sum(graph.saved_bytes for graph in run.saved), "bytes", True
    totals["memory of CUDA graphs"] = sum(graph.bytes_held for graph in run.cudagraphs), "bytes", True
    return totals


def _phases(run: RunRecords) -> dict[str, float]:
    """Return the seconds of each compile phase. Backward graphs, whose phases torch does not report, count as one phase."""
    names = {"trace": "Dynamo", "aot": "AOTAutograd", "backend": "the backend", "guards": "guards"}
    names |= {"autotuning": "autotuning", "kernels": "C++ and Triton compilers"}
    seconds = {text: sum(compile.phases.get(name, 0.0) for compile in run.compiles) for name, text in names.items()}
    return seconds | {"backward graphs": sum(backward.seconds for backward in run.backwards)}


def _notes(before: RunRecords, after: RunRecords) -> Iterator[str]:
    for name in ("command", "torch", "python"):
        old, new = before.header.get(name), after.header.get(name)
        if old != new:
            yield f"another {name}: {_text(old)}, then {_text(new)}"
    if before.end.get("device") != after.end.get("device"):
        yield f"another device: {before.end.get('device')}, then {after.end.get('device')}"
    for name, run in (("first", before), ("second", after)):
        if not run.is_complete:
            yield f"the {name} run did not finish"
        if run.problems or run.unknown:
            yield f"not all of the {name} run can be read"


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
