"""Render a run as a JSON trace for Perfetto (ui.perfetto.dev) and chrome://tracing.

In Chrome's Trace Event Format, the phase "X" is an event with a duration, "i" an instant event and "M" metadata, such as the
name of a track; times are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from dynx.records.backward import BackwardCapture
from dynx.records.compile import Backward, Compile
from dynx.records.cudagraphs import AddressChange, GraphRecorded, Skip
from dynx.records.graph_break import GraphBreak
from dynx.records.run_records import RunRecords
from dynx.records.table import Change
from dynx.report import _words as words

_TRACKS = {1: "compilations", 2: "CUDA graphs", 3: "compiled autograd"}
Event = dict[str, Any]
Timed = Compile | Backward


def document(run: RunRecords) -> str:
    """Return the trace as JSON: compilations, captures of CUDA graphs and backward passes, uncaptured operations, addresses.

    Records without a time, as in run files of an older dynx version, are omitted.
    """
    events: list[Event] = [
        _named("process_name", 0, words.command(run.header)),
        *(_named("thread_name", *track) for track in _TRACKS.items()),
    ]
    compiled: list[Timed] = [*run.compiles, *run.backwards]
    compiled = sorted((record for record in compiled if record.began), key=lambda record: record.began)
    known = _Known(run)
    events += [_slice(1, *_compiled(record, known), record.began, seconds) for record, seconds in _nested(compiled)]
    events += [
        _slice(2, f"record {graph.part}", _graph(graph), graph.began, graph.seconds) for graph in run.cudagraphs if graph.began
    ]
    events += [
        _instant(*_event(event), event.at) for event in run.events if isinstance(event, Skip | AddressChange) and event.at
    ]
    events += [
        _slice(3, f"capture {each.id}", _capture(each), each.began, each.seconds)
        for each in run.backward_captures
        if each.began
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(run.header)})


def _nested(compiled: Iterable[Timed]) -> Iterator[tuple[Timed, float]]:
    """Yield each compilation and its duration. The duration includes nested compilations; `Compile.seconds` excludes them.

    torch compiles one frame at a time, so compilations that overlap are nested.
    """
    open_: list[tuple[Timed, float]] = []  # with the seconds of all compilations before it
    total = 0.0

    def seconds() -> float:
        return total - open_[-1][1]

    for record in compiled:
        while open_ and open_[-1][0].began + seconds() <= record.began:
            yield open_[-1][0], seconds()
            open_.pop()
        open_.append((record, total))
        total += record.seconds
    while open_:
        yield open_[-1][0], seconds()
        open_.pop()


class _Known:
    """Functions, recompiles and graph breaks by compilation; each key is (number of earlier Dynamo resets, compile id)."""

    def __init__(self, run: RunRecords) -> None:
        self.function = {compile.key: compile.location.function for compile in run.compiles}
        self.recompile = {recompile.key: recompile for recompile in run.recompiles}
        self.breaks: dict[tuple[int, str], list[GraphBreak]] = {}
        for graph_break in run.graph_breaks:
            for key in dict.fromkeys(graph_break.compiles):
                self.breaks.setdefault(key, []).append(graph_break)


def _compiled(record: Timed, known: _Known) -> tuple[str, dict[str, Any]]:
    """Return name and details of the trace event of a compilation: failed guards, graph breaks, counts, seconds by phase."""
    if isinstance(record, Backward):
        return f"{known.function.get((record.generation, record.id), record.id)} (backward)", {"id": record.id}
    args: dict[str, Any] = {"id": record.id, "outcome": record.outcome, "line": words.plain_place(record.location)}
    if record.called_from is not None:
        args["called from"] = words.plain_place(record.called_from)
    if (recompile := known.recompile.get(record.key)) is not None:
        args["recompiled because"] = [
            f"{reason.subject}: {Change(reason.expected, reason.got)}" for reason in recompile.reasons
        ]
    breaks = [f"{words.plain_place(each.location)}: {each.reason}" for each in known.breaks.get(record.key, ())]
    phases = {f"{name} (s)": round(seconds, 6) for name, seconds in record.phases.items()}
    more = {
        "graph breaks": breaks,
        "nodes": record.nodes,
        "guards": record.guards,
        "backend": record.backend,
        "reason": record.reason,
    }
    return record.location.function, args | {name: value for name, value in more.items() if value} | phases


def _graph(graph: GraphRecorded) -> dict[str, Any]:
    return {"inputs copied": graph.copies, "bytes copied": graph.bytes_copied, "bytes held": graph.bytes_held}


def _capture(capture: BackwardCapture) -> dict[str, Any]:
    phases = {f"{name} (s)": round(seconds, 6) for name, seconds in capture.phases.items()}
    where = {"line": words.plain_place(capture.location)} if capture.location is not None else {}
    why = list(map(str, capture.reasons))
    return where | {"captured because": why, "nodes": len(capture.nodes), "calls": capture.calls} | phases


def _event(event: Skip | AddressChange) -> tuple[str, dict[str, Any]]:
    """Return the name and details of the trace event for an uncaptured operation, or for a parameter's new address."""
    where = {"line": words.plain_place(event.location)} if event.location is not None else {}
    if isinstance(event, Skip):
        return f"uncaptured: {event.reason}", where | ({"what to do": event.advice} if event.advice else {})
    addresses = {"before": hex(event.before), "after": hex(event.after), "changes": event.times}
    return f"{event.name} has a new address", where | addresses


def _named(what: str, track: int, name: str) -> Event:
    return {"ph": "M", "pid": 1, "tid": track, "name": what, "args": {"name": name}}


def _slice(track: int, name: str, args: dict[str, Any], began: float, seconds: float) -> Event:
    times = {"ts": round(began * 1e6), "dur": round(seconds * 1e6)}
    return {"ph": "X", "pid": 1, "tid": track, "name": name, "args": args, **times}


def _instant(name: str, args: dict[str, Any], at: float) -> Event:
    return {"ph": "i", "s": "t", "pid": 1, "tid": 2, "name": name, "args": args, "ts": round(at * 1e6)}
