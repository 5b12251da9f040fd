"""`dynx.watch()` records captured CUDA graphs, skipped captures and address changes, and reports show them."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console
from support.configs import compiled

import dynx
from dynx import cudagraphs
from dynx.errors import DynxWarning


@pytest.fixture
def watched_run(device):
    """A run with captured CUDA graphs for two sizes, and a third size that is over the limit."""
    run = compiled(lambda x: x * 2, device, dynamic=True, max_recordings=2)
    with dynx.watch() as watch:
        for size in (3, 3, 4, 4):
            run(torch.ones(size, device=device))
        with pytest.warns(DynxWarning, match="needs more than 2 recordings"):
            run(torch.ones(5, device=device))
        for _ in range(3):  # one warning for all
            run(torch.ones(5, device=device))
    return watch.run


def test_watched_run_lists_captured_graphs_and_skipped_captures(watched_run):
    first, second = watched_run.cudagraphs
    assert (first.part, first.copies, first.bytes_copied) == ("inference", 1, 12)
    assert second.bytes_copied == 16
    assert first.seconds > 0
    (skip,) = watched_run.cudagraph_skips
    assert (skip.kind, skip.count) == ("limit", 1)
    assert cudagraphs.stats().skips == (skip,)
    (finding,) = (finding for finding in watched_run.findings if finding.rule == "DX604")
    assert finding.location.file == __file__


def test_recording_limit_finding_points_to_the_line_of_the_call(device):
    """The finding points to the call of the compiled function, not into that function or to the caller of the program."""
    run = compiled(lambda x: x * 2, device, dynamic=True, max_recordings=1)

    @dynx.watch()
    def program():
        for size in (3, 3, 4):
            run(torch.ones(size, device=device))

    with pytest.warns(DynxWarning, match="needs more than 1 recording"):
        program()
    (finding,) = program.dynx.findings
    assert finding.location.function.endswith("program")
    assert finding.location.line == program.__wrapped__.__code__.co_firstlineno + 3


def test_saved_run_file_keeps_the_cuda_graph_records(watched_run, tmp_path):
    watched_run.save(tmp_path / "run.jsonl")
    loaded = dynx.Run.load(tmp_path / "run.jsonl")
    assert loaded.cudagraphs == watched_run.cudagraphs
    assert loaded.cudagraph_skips == watched_run.cudagraph_skips
    assert loaded.findings == watched_run.findings


def test_reports_show_the_cuda_graph_records(watched_run):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(watched_run)
    text = console.export_text()
    assert "2 CUDA graphs" in text
    assert "DX604" in text
    assert "1 input copied, 12 bytes" in watched_run._repr_html_()


def test_parameter_address_changes_are_recorded_and_reported_as_a_finding(device):
    weight = torch.nn.Parameter(torch.ones(3, 3, device=device))
    run, old_data = compiled(lambda x: x @ weight, device, dynamic=True), []
    with dynx.watch() as watch, torch.no_grad():
        for _ in range(6):
            run(torch.ones(2, 3, device=device))
            old_data.append(weight.data)
            weight.data = weight.data + 1
    assert [(move.times, move.is_copied) for move in watch.run.address_changes] == [(1, False), (2, False), (3, True)]
    assert watch.run.address_changes == cudagraphs.stats().address_changes
    (finding,) = watch.run.findings
    assert finding.rule == "DX605"
    assert finding.location.line == watch.run.address_changes[0].location.line
