"""What torch's own CUDA graphs (`mode="reduce-overhead"`) skip or record again is a finding, as it is with those of dynx."""

from __future__ import annotations

import logging

import pytest
import torch

import dynx
from dynx._trace.tree_skips import skip_of

LOGGER = logging.getLogger("torch._inductor.cudagraph_utils.__cudagraphs")
FOUND = ". Found from : \n "
STACK = '   File "/app/model.py", line 12, in forward\n    return x + self.offset\n'


@pytest.fixture(autouse=True)
def warnings_are_logged():
    """Log what torch logs outside of tests, which silence it: a handler does not see what no logger passes on."""
    level = LOGGER.level
    LOGGER.setLevel(logging.WARNING)
    yield
    LOGGER.setLevel(level)


@pytest.mark.parametrize(
    ("message", "reason", "line", "kind"),
    [
        (
            f"skipping cudagraphs due to cpu device (arg0_1){FOUND}{STACK}",
            "skipped, because a tensor on the CPU",
            12,
            "operator",
        ),
        (
            f"skipping cudagraphs due to mutated inputs (1 instances). Found from : \n {STACK}",
            "skipped, because an input of the",
            12,
            "operator",
        ),
        (
            "skipping cudagraphs due to multiple devices: 'cuda:0', 'cuda:1'",
            "skipped, because the graph has tensors",
            None,
            "operator",
        ),
        (
            "skipping cudagraphs due to deterministic index put. Found from : \n " + STACK,
            "skipped, because of deterministic index put",
            12,
            "operator",
        ),
        (
            "skipping cudagraph due to function 0 exceeding max re-recording limit (=128) on cudagraph node 1 due to pointers.",
            "skipped, because an input has a new address on each call",
            None,
            "limit",
        ),
        (
            "CUDAGraph supports dynamic shapes by recording a new graph for each distinct input size. We have observed 9",
            "they record a graph for each input size",
            None,
            "limit",
        ),
    ],
)
def test_a_message_of_torch_becomes_a_record(message, reason, line, kind):
    skip = skip_of(message)
    assert skip is not None
    assert skip.reason.startswith(f"torch's CUDA graphs: {reason}")
    assert skip.advice
    assert skip.kind == kind
    if line is not None:
        assert (skip.location.file, skip.location.line) == ("/app/model.py", line)
    else:
        assert skip.location.file == __file__  # the call


def test_other_messages_are_ignored():
    assert skip_of("recording cudagraph tree for graph without symints") is None


def test_a_watch_records_messages_on_any_thread_and_leaves_the_logger_as_it_was():
    before = list(LOGGER.handlers)
    with dynx.watch() as watch:
        LOGGER.warning("skipping cudagraphs due to %s", "mutated inputs (1 instances)")
    LOGGER.warning("skipping cudagraphs due to mutated inputs (1 instances)")
    assert LOGGER.handlers == before
    (finding,) = watch.findings
    assert finding.rule == "DX601"
    assert finding.count == 1
    assert "buffer of the module" in finding.advice


def run(function, *calls):
    compiled = torch.compile(function, mode="reduce-overhead")
    with dynx.watch() as watch:
        for args in calls:
            torch.compiler.cudagraph_mark_step_begin()
            compiled(*args)
    return watch


@pytest.mark.gpu
def test_a_tensor_on_the_cpu_is_named_with_its_line():
    def scale(x, offset):
        return x * 2, offset.sin() + 1

    with torch._inductor.config.patch(graph_partition=False):  # else only the part of the graph on the CPU is not captured
        watch = run(scale, *[(torch.ones(8, device="cuda"), torch.ones(4))] * 3)
    (finding,) = [finding for finding in watch.findings if finding.rule == "DX601"]
    assert "a tensor on the CPU" in finding.title
    assert finding.location.own.function.endswith("scale")


@pytest.mark.gpu
def test_an_input_that_is_changed_in_place_is_named_with_its_line():
    def update(total, x):
        total.add_(x)
        return total * 2

    watch = run(update, *[(torch.zeros(8, device="cuda"), torch.ones(8, device="cuda")) for _ in range(3)])
    assert [finding.title for finding in watch.findings if "an input of the graph is changed in place" in finding.title]


@pytest.mark.gpu
def test_many_sizes_are_a_finding_at_the_call():
    def double(x):
        return x * 2

    limit = torch._inductor.config.triton.cudagraph_dynamic_shape_warn_limit
    calls = [(torch.ones(size, device="cuda"),) for size in range(2, limit + 6)]
    watch = run(torch.compile(double, dynamic=True, mode="reduce-overhead"), *calls)
    (finding,) = [finding for finding in watch.findings if finding.rule == "DX604"]
    assert "record a graph for each input size" in finding.title
    assert finding.location.own.file == __file__
