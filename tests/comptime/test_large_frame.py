"""Calls behind a large frame do not allocate at the ends of the chunks in which Python keeps frames."""

from __future__ import annotations

import mmap
import sys
import threading

import pytest
import torch
from torch._dynamo import convert_frame

from dynx._bytecode.large_frame import call_in_large_frame
from dynx.comptime import debug, post_mortem, probe, timeline

resource = pytest.importorskip("resource", reason="page faults are counted by a module of Unix")

CALLS = 2000


def leaf(a=0, b=0, c=0):
    return a, b, c


def faults_behind(frames):
    """Return the page faults of many calls, `frames` calls deeper in the stack."""
    if frames:
        return faults_behind(frames - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        leaf()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def are_faults_counted():
    """Whether the first write to each page of new memory is counted; some sandboxes count none."""
    pages, before = 1000, resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before >= pages / 2


def most_faults():
    return max(map(faults_behind, range(200)))


@pytest.mark.skipif(sys.platform != "linux" or sys.implementation.name != "cpython", reason="how CPython's allocator uses mmap")
@pytest.mark.skipif(not are_faults_counted(), reason="this machine does not count page faults")
def test_no_depth_of_the_stack_makes_calls_allocate():
    assert most_faults() > CALLS / 2  # without it: some depth allocates in each call
    assert call_in_large_frame(most_faults, (), {}) < CALLS / 10


def test_arguments_results_and_exceptions_pass_through():
    assert call_in_large_frame(dict, ([("b", 2)],), {"a": 1}) == {"b": 2, "a": 1}
    with pytest.raises(ZeroDivisionError):
        call_in_large_frame(divmod, (1, 0), {})


def test_in_threads_with_a_small_stack_and_at_the_recursion_limit():
    """The frame is on Python's own stack, not on that of the thread."""

    def recurse(depth):
        return call_in_large_frame(recurse, (depth - 1,), {}) if depth else "end"

    found = []
    before = threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=lambda: found.append(recurse(100)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found == ["end"]


@pytest.mark.parametrize("tool", [post_mortem, timeline, lambda: probe(leaf)], ids=["post_mortem", "timeline", "probe"])
def test_traces_run_behind_a_large_frame_while_a_tool_is_open(tool):
    seen = []
    original = convert_frame.trace_frame

    def trace_frame(*args, **kwargs):
        seen.append(most_faults())
        return original(*args, **kwargs)

    convert_frame.trace_frame = trace_frame
    try:
        torch._dynamo.reset()
        with tool():
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        torch._dynamo.reset()
        debug(lambda x: x + 2, script="c")(torch.ones(2))
        assert convert_frame.trace_frame is trace_frame
    finally:
        convert_frame.trace_frame = original
    assert len(seen) == 2
    assert max(seen) < CALLS / 10
