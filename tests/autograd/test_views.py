"""What a user sees of captures: on a terminal and in a notebook, the commented code, and the trace for Perfetto."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import torch
from rich.console import Console

import dynx
from dynx import report
from tests.autograd.test_recaptures import net, plain, powers, with_function, with_tensor_hook


@pytest.fixture(scope="module")
def log():
    torch._dynamo.reset()
    model = net()
    with dynx.autograd.capture(backend=None) as log:
        for step in (plain, powers(3), with_function, with_tensor_hook):
            step(model)
    return log


def screen(shown, width=120) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_the_log_shows_each_capture_with_its_reason(log):
    text = screen(log)
    assert text.startswith("4 backward passes captured  4 passes ran them")
    assert "the first capture" in text
    assert "PowBackward0 (NodeCall 2): exponent 2, then 3" in text
    assert repr(log) == "<CaptureLog: 4 captures, 4 calls>"


@pytest.mark.parametrize("width", [80, 120, 140])
def test_a_capture_shows_its_nodes(log, width):
    text = screen(log[3], width)
    assert all(line == line.rstrip() or len(line) <= width for line in text.splitlines())
    for expected in ("!3 captured again by", "tensor_pre_hook doubled", "0.weight", "trace", "reorder", "TBackward0"):
        assert expected in text
    assert "Scale" in screen(log[2], width)


def test_a_notebook_shows_the_same_and_escapes_it(log):
    html = log._repr_html_() + log[3]._repr_html_()
    assert "exponent 2, then 3" in html
    assert "tensor_pre_hook doubled" in html


def test_the_code_names_the_node_above_its_part(log):
    lines = log[1].code.splitlines()
    comment = next(number for number, line in enumerate(lines) if "# PowBackward0 (NodeCall 2)" in line)
    assert "test_recaptures.py" in lines[comment]
    assert "PowBackward0(" in lines[comment + 1]
    assert [line for line in lines if not line.startswith("    #")] == log[1].graph.code.splitlines()


def test_sizes_and_callbacks_have_no_comment(log):
    after = [line.strip() for comment, line in pairwise(log[1].code.splitlines()) if comment.startswith("    #")]
    assert after
    assert not any(line.startswith(("unwrap_maybe_dynamic_int", "_exec_final_callbacks")) for line in after)


def test_phases_are_the_seconds_of_the_capture(log):
    assert list(log[0].phases) == ["trace", "reorder", "code", "backend"]
    assert all(seconds >= 0 for seconds in log[0].phases.values())
    assert sum(log[0].phases.values()) == pytest.approx(log[0].seconds)


def test_a_trace_for_perfetto_has_the_captures():
    torch._dynamo.reset()
    model = net()
    with dynx.watch() as run, dynx.autograd.capture(backend=None):
        plain(model)
        powers(3)(model)
    events = json.loads(report.perfetto(run))["traceEvents"]
    captures = [event for event in events if event.get("tid") == 3 and event["ph"] == "X"]
    assert [event["name"] for event in captures] == ["capture !0", "capture !1"]
    assert "exponent 2, then 3" in captures[1]["args"]["captured because"][0]
    assert all(event["dur"] > 0 and "trace (s)" in event["args"] for event in captures)
