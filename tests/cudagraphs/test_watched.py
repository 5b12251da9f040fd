"""What dynx.watch() and its report say of CUDA graphs."""

from __future__ import annotations

import io

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
from rich.console import Console

import dynx
from dynx import cudagraphs
from dynx.errors import DynxWarning


def compiled(fn, device, **options):
    return torch.compile(fn, backend=cudagraphs.backend(cudagraphs.Config(runtime=RUNTIMES[device], **options)), dynamic=True)


@pytest.fixture
def watched(device):
    """A run with recordings of two graphs, and a third that is not captured."""
    run = compiled(lambda x: x * 2, device, max_recordings=2)
    with dynx.watch() as watch:
        for size in (3, 3, 4, 4):
            run(torch.ones(size, device=device))
        with pytest.warns(DynxWarning, match="needs more than 2 recordings"):
            run(torch.ones(5, device=device))
        for _ in range(3):  # is said once
            run(torch.ones(5, device=device))
    return watch.run


def test_recordings_and_what_is_not_recorded(watched):
    first, second = watched.cudagraphs
    assert (first.part, first.copies, first.bytes_copied) == ("inference", 1, 12)
    assert second.bytes_copied == 16
    assert first.seconds > 0
    (skip,) = watched.cudagraph_skips
    assert (skip.kind, skip.count) == ("limit", 1)
    assert cudagraphs.stats().skips == (skip,)
    (finding,) = (each for each in watched.findings if each.rule == "DX604")
    assert finding.location.file == __file__


def test_the_line_is_that_of_the_call(device):
    """Not that of the compiled function, nor that of whoever runs the program."""
    run = compiled(lambda x: x * 2, device, max_recordings=1)

    @dynx.watch()
    def program():
        for size in (3, 3, 4):
            run(torch.ones(size, device=device))

    with pytest.warns(DynxWarning, match="needs more than 1 recording"):
        program()
    (finding,) = program.dynx.findings
    assert finding.location.function.endswith("program")
    assert finding.location.line == program.__wrapped__.__code__.co_firstlineno + 3


def test_they_are_part_of_a_run_file(watched, tmp_path):
    watched.save(tmp_path / "run.jsonl")
    loaded = dynx.Run.load(tmp_path / "run.jsonl")
    assert loaded.cudagraphs == watched.cudagraphs
    assert loaded.cudagraph_skips == watched.cudagraph_skips
    assert loaded.findings == watched.findings


def test_they_are_shown(watched):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(watched)
    text = console.export_text()
    assert "2 CUDA graphs" in text
    assert "DX604" in text
    assert "1 input copied, 12 bytes" in watched._repr_html_()


def test_moves(device):
    weight = torch.nn.Parameter(torch.ones(3, 3, device=device))
    run, kept = compiled(lambda x: x @ weight, device), []
    with dynx.watch() as watch, torch.no_grad():
        for _ in range(6):
            run(torch.ones(2, 3, device=device))
            kept.append(weight.data)
            weight.data = weight.data + 1
    assert [(each.times, each.is_copied) for each in watch.run.moves] == [(1, False), (2, False), (3, True)]
    assert watch.run.moves == cudagraphs.stats().moves
    (finding,) = watch.run.findings
    assert finding.rule == "DX605"
    assert finding.location.line == watch.run.moves[0].location.line
