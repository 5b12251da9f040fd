"""A run along time, for Perfetto and chrome://tracing.

Source: the Trace Event Format of Chrome. "X" is something that takes time, "i" a moment, "M" a name; times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dynx.records.compile import Backward, Compile
from dynx.records.cudagraphs import AddressChange, GraphRecorded, Skip
from dynx.records.run import Run
from dynx.records.table import Change
from dynx.report import _words as words

_TRACKS = {1: "compilations", 2: "CUDA graphs"}
Event = dict[str, Any]
Timed = Compile | Backward


def document(run: Run) -> str:
    """Compilations with what made them necessary and what they broke at; recordings of CUDA graphs, skips and moves.

    What a run of an older dynx has no time for is left out.
    """
    events: list[Event] = [
        _named("process_name", 0, words.command(run.header)),
        *(_named("thread_name", *track) for track in _TRACKS.items()),
    ]
    compiled: list[Timed] = [*run.compiles, *run.backwards]
    compiled = sorted((each for each in compiled if each.began), key=lambda each: each.began)
    events += [_slice(1, *_compiled(each, run), each.began, each.seconds) for each in _nested(compiled)]
    events += [
        _slice(2, f"record {each.part}", _graph(each), each.began, each.seconds) for each in run.cudagraphs if each.began
    ]
    events += [_moment(*_seen(each), each.at) for each in run.events if isinstance(each, Skip | AddressChange) and each.at]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(run.header)})


def _nested(compiled: Iterable[Timed]) -> Iterator[Timed]:
    """Give each the time of those that began within it, which its own leaves out; torch compiles one after another."""
    under_way: list[Timed] = []
    for each in compiled:
        while under_way and under_way[-1].began + under_way[-1].seconds <= each.began:
            yield under_way.pop()
        under_way = [replace(outer, seconds=outer.seconds + each.seconds) for outer in under_way]
        under_way.append(each)
    yield from reversed(under_way)


def _compiled(each: Timed, run: Run) -> tuple[str, dict[str, Any]]:
    if isinstance(each, Backward):
        names = [one.location.function for one in run.compiles if one.key == (each.generation, each.id)]
        return f"{names[-1] if names else each.id} (backward)", {"id": each.id}
    said: dict[str, Any] = {"id": each.id, "outcome": each.outcome, "line": words.place(each.location)}
    if each.called_from is not None:
        said["called from"] = words.place(each.called_from)
    for again in run.recompiles:
        if (again.generation, again.id) == each.key:
            said["recompiled since"] = [f"{why.subject}: {Change(why.expected, why.got)}" for why in again.reasons]
    breaks = [f"{words.place(one.location)}: {one.reason}" for one in run.graph_breaks if each.key in one.compiles]
    phases = {f"{name} (s)": round(seconds, 6) for name, seconds in each.phases.items()}
    more = {"graph breaks": breaks, "nodes": each.nodes, "guards": each.guards, "backend": each.backend, "reason": each.reason}
    return each.location.function, said | {name: value for name, value in more.items() if value} | phases


def _graph(each: GraphRecorded) -> dict[str, Any]:
    return {"inputs copied": each.copies, "bytes copied": each.bytes_copied, "bytes held": each.bytes_held}


def _seen(each: Skip | AddressChange) -> tuple[str, dict[str, Any]]:
    where = {"line": words.place(each.location)} if each.location is not None else {}
    if isinstance(each, Skip):
        return f"uncaptured: {each.reason}", where | ({"what to do": each.advice} if each.advice else {})
    return f"{each.name} moved", where | {"before": hex(each.before), "now": hex(each.after), "moves": each.times}


def _named(what: str, track: int, name: str) -> Event:
    return {"ph": "M", "pid": 1, "tid": track, "name": what, "args": {"name": name}}


def _slice(track: int, name: str, said: dict[str, Any], began: float, seconds: float) -> Event:
    times = {"ts": round(began * 1e6), "dur": round(seconds * 1e6)}
    return {"ph": "X", "pid": 1, "tid": track, "name": name, "args": said, **times}


def _moment(name: str, said: dict[str, Any], at: float) -> Event:
    return {"ph": "i", "s": "t", "pid": 1, "tid": 2, "name": name, "args": said, "ts": round(at * 1e6)}
