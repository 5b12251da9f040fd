"""A run along time, in the format of Chrome's traces."""

from __future__ import annotations

import json
import time

import pytest
import torch

import dynx
from dynx import cudagraphs
from dynx.records import Backward, Compile, GraphBreak, Location, Reason, Recompile, Run
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
    return {each["name"]: (each["tid"], each["ts"], each["dur"]) for each in events_of(run) if each["ph"] == "X"}


def said(run, name):
    (found,) = (each for each in events_of(run) if each["name"] == name)
    return found["args"]


def test_what_takes_time_lies_within_what_waits_for_it():
    assert slices(Run(EVENTS)) == {
        "outer": (1, 101_000_000, 3_000_000),  # its own two seconds, and the one of `inner`
        "inner": (1, 101_500_000, 1_000_000),
        "outer (backward)": (1, 105_000_000, 500_000),
        "record forward": (2, 106_000_000, 250_000),
    }


def test_compilations_say_what_made_them_necessary_and_where_they_broke():
    run = Run(EVENTS)
    expected = {
        "recompiled since": ["x.size()[0]: 3, then 4"],
        "graph breaks": ["a/model.py:5: no print"],
        "line": "a/model.py:5",
    }
    assert said(run, "outer") == {"id": "0/1", "outcome": "compiled"} | expected
    expected = {"line": "a/model.py:9", "called from": "a/model.py:5", "nodes": 3, "trace (s)": 0.25}
    assert said(run, "inner") == {"id": "1/0", "outcome": "compiled"} | expected


def test_moments():
    found = [(each["name"], each["ts"], each["args"]) for each in events_of(Run(EVENTS)) if each["ph"] == "i"]
    assert found == [
        ("uncaptured: it waits", 107_000_000, {"line": "a/model.py:9", "what to do": "do not wait"}),
        ("w moved", 108_000_000, {"line": "a/model.py:5", "before": "0x10", "now": "0x20", "moves": 2}),
    ]


@pytest.mark.parametrize("events", [(), (Compile(0, "0/0", OUTER, "compiled", 2.0),)])
def test_what_has_no_time_is_left_out(events):
    assert {each["ph"] for each in events_of(Run(events))} == {"M"}


def test_a_program_that_ran():
    def program(x):
        return x.sin() * 2

    config, before = cudagraphs.Config(runtime="emulator"), time.time()
    with dynx.watch() as w:
        run = torch.compile(program, backend=cudagraphs.backend(config))
        for size in (3, 4):
            for _ in range(2):
                run(torch.ones(size))
    found = sorted((each["ts"], each["ts"] + each["dur"], each["name"]) for each in events_of(w.run) if each["ph"] == "X")
    assert [name.rpartition(".")[2] for _, _, name in found] == ["program", "record inference"] * 2
    times = [each for begin, end, _ in found for each in (begin, end)]
    assert times == sorted(times)
    assert before * 1e6 - 1 <= times[0]
    assert times[-1] <= time.time() * 1e6 + 1
