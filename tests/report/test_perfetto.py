"""`Run.to_perfetto`: a run in Chrome's trace event format, which Perfetto shows."""

from __future__ import annotations

import json
import time

import pytest
import torch

import dynx
from dynx import Run, cudagraphs
from dynx.records import Backward, Compile, GraphBreak, Location, Reason, Recompile
from dynx.records.cudagraphs import AddressChange, GraphRecorded, Skip

OUTER, INNER = Location("a/model.py", 5, "outer"), Location("a/model.py", 9, "inner")
EVENTS = (
    GraphBreak(OUTER, (OUTER,), "no print", compiles=((0, "0/1"),)),
    Recompile(0, "0/1", OUTER, (Reason("size", "x.size()[0]", "3", "4", OUTER),), 2.0),
    Compile(0, "1/0", INNER, "compiled", 1.0, phases={"trace": 0.25}, nodes=3, called_from=OUTER, began=101.5),
    Compile(0, "0/1", OUTER, "compiled", 2.0, began=101.0),
    Backward(0, "0/1", 0.5, 105.0),
    GraphRecorded("forward", 0.25, 1, 64, 128, 106.0),
    Skip("it waits", INNER, "do not wait", at=107.0),
    AddressChange("w", 16, 32, 2, OUTER, at=108.0),
)


def events_of(run):
    return json.loads(run.to_perfetto())["traceEvents"]


def slices(run):
    return {event["name"]: (event["tid"], event["ts"], event["dur"]) for event in events_of(run) if event["ph"] == "X"}


def arguments(run, name):
    (event,) = (event for event in events_of(run) if event["name"] == name)
    return event["args"]


def test_perfetto_slice_of_a_compilation_spans_its_nested_compilations():
    assert slices(Run(EVENTS)) == {
        "outer": (1, 101_000_000, 3_000_000),  # its own two seconds, and the one of `inner`
        "inner": (1, 101_500_000, 1_000_000),
        "outer (backward)": (1, 105_000_000, 500_000),
        "record forward": (2, 106_000_000, 250_000),
    }


def test_perfetto_slice_of_a_compilation_has_its_recompile_reasons_and_graph_breaks():
    run = Run(EVENTS)
    expected = {
        "recompiled because": ["x.size()[0]: 3, then 4"],
        "graph breaks": ["a/model.py:5: no print"],
        "line": "a/model.py:5",
    }
    assert arguments(run, "outer") == {"id": "0/1", "outcome": "compiled"} | expected
    expected = {"line": "a/model.py:9", "called from": "a/model.py:5", "nodes": 3, "trace (s)": 0.25}
    assert arguments(run, "inner") == {"id": "1/0", "outcome": "compiled"} | expected


def test_cuda_graph_skips_and_address_changes_are_perfetto_instant_events():
    instants = [(event["name"], event["ts"], event["args"]) for event in events_of(Run(EVENTS)) if event["ph"] == "i"]
    assert instants == [
        ("uncaptured: it waits", 107_000_000, {"line": "a/model.py:9", "what to do": "do not wait"}),
        ("w has a new address", 108_000_000, {"line": "a/model.py:5", "before": "0x10", "after": "0x20", "changes": 2}),
    ]


@pytest.mark.parametrize("events", [(), (Compile(0, "0/0", OUTER, "compiled", 2.0),)])
def test_perfetto_trace_omits_records_without_a_time(events):
    assert {event["ph"] for event in events_of(Run(events))} == {"M"}


def test_perfetto_events_of_a_program_are_in_order_and_within_its_run_time():
    def program(x):
        return x.sin() * 2

    config, before = cudagraphs.Config(runtime="emulator"), time.time()
    with dynx.watch() as w:
        run = torch.compile(program, backend=cudagraphs.backend(config))
        for size in (3, 4):
            for _ in range(2):
                run(torch.ones(size))
    spans = sorted((event["ts"], event["ts"] + event["dur"], event["name"]) for event in events_of(w.run) if event["ph"] == "X")
    assert [name.rpartition(".")[2] for _, _, name in spans] == ["program", "record inference"] * 2
    times = [time for begin, end, _ in spans for time in (begin, end)]
    assert times == sorted(times)
    assert before * 1e6 - 1 <= times[0]
    assert times[-1] <= time.time() * 1e6 + 1
