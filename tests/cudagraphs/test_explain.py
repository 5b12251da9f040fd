"""`cudagraphs.explain`: the report on each graph, and the report as text."""

from __future__ import annotations

import gc
import io
import json

import pytest
import torch
from rich.console import Console
from support.configs import config_for
from support.devices import on_cuda

from dynx import cudagraphs
from dynx.records.codec import from_data, to_data
from dynx.records.cudagraphs import CudagraphReport, PoolMemory


def explain(device, fn, *args, **options):
    return cudagraphs.explain(fn, *args, config=config_for(device, **options))


def rendered(report):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(report)
    return console.export_text()


def heavy(x):
    return x.sin().cos().exp().tanh()


def test_explain_reports_input_kinds_copies_and_memory(device):
    norm = torch.nn.BatchNorm1d(4).to(device)
    x = torch.randn(8, 4, device=device)
    with torch.no_grad():
        (graph,) = explain(device, lambda x: norm(x) * 2, x).graphs
    kinds = {graph_input.name: (graph_input.kind, graph_input.is_mutated) for graph_input in graph.plan.inputs}
    assert kinds["norm.weight"] == ("static", False)
    assert kinds["norm.running_mean"] == ("static", True)
    assert kinds["x"] == ("dynamic", False)
    assert (graph.recordings, graph.replays, graph.copies, graph.bytes_copied) == (1, 2, 1, x.nbytes)
    assert graph.bytes_held == 0, "outputs that the graph itself copies need no memory of their own"
    with torch.no_grad():
        (graph,) = explain(device, lambda x: norm(x) * 2, x, outputs="alias").graphs
    assert graph.bytes_held == x.nbytes, "the result"
    with torch.no_grad():
        (graph,) = explain(device, lambda x: norm(x) * 2, x, outputs="alias", inputs="copy").graphs
    assert graph.bytes_held == 2 * x.nbytes, "the result, and a copy of the input"


def test_explain_reports_backward_graphs_and_leaves_grad_unset(device):
    model = torch.nn.Linear(4, 4, device=device)
    report = explain(device, model, torch.randn(2, 4, device=device))
    assert [(graph.plan.part, graph.recordings) for graph in report.graphs] == [("forward", 1), ("backward", 1)]
    assert model.weight.grad is None
    assert repr(report) == "<CudagraphReport: 2 of 2 graphs captured>"


@pytest.mark.uncaptured
def test_explain_reports_the_line_and_advice_for_an_uncaptured_graph(device):
    def function(x):
        return heavy(x)[x > 0].sum()  # HERE

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        report = explain(device, function, torch.randn(8, device=device), partition=False)
    (skip,) = report.graphs[0].plan.skips
    assert skip.location.line == function.__code__.co_firstlineno + 1
    assert skip.advice.startswith("make the size fixed")
    text = rendered(report)
    assert "runs uncaptured" in text
    assert "returns a size that depends on values; make the size fixed: torch.where" in text


def test_explain_reports_the_pieces_of_a_split_graph(device):
    def function(x):
        a = heavy(x)
        return heavy(a)[a > 0.6].sum(), heavy(a + 1)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        report = explain(device, function, torch.randn(8, device=device))
    assert any(not piece.why_uncaptured for piece in report.graphs[0].plan.pieces)
    assert "piece 1: " in rendered(report)
    assert "launches, captured" in rendered(report)


def test_explain_reports_why_inputs_are_copied_instead_of_patched(device):
    report = explain(device, lambda x: x.add_(1) * 2, torch.ones(3, device=device), inputs="patch")
    assert report.graphs[0].notes == (
        "inputs are copied, not patched: the graph mutates its inputs, so patched pointers cannot be verified by replaying it",
    )
    assert "inputs are copied, not patched: the graph mutates its inputs" in rendered(report)


def test_explain_accepts_a_compiled_module(device):
    model = torch.compile(torch.nn.Linear(4, 4, device=device), backend="eager")
    with torch.no_grad():
        assert len(explain(device, model, torch.randn(2, 4, device=device)).graphs) == 1


def test_explain_reports_that_there_is_no_cuda_device(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    model = torch.nn.Linear(2, 2)
    report = cudagraphs.explain(lambda x: model(x), torch.ones(1, 2))
    assert report.notes == ("there is no CUDA device: nothing is captured",)
    assert [entry.name for entry in report.graphs[0].plan.inputs if entry.kind == "static"] == ["model.weight", "model.bias"]


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_explain_report_round_trips_through_json(device):
    report = explain(device, torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert from_data(type(report), json.loads(json.dumps(to_data(report)))) == report
    assert "forward graph" in report._repr_html_()
    assert json.loads(report.to_json())["graphs"]


def test_stats_have_the_bytes_that_recordings_hold(device):
    model = torch.nn.Linear(64, 64).to(device)
    x = torch.ones(8, 64, device=device)
    with torch.no_grad():
        run, other = (
            cudagraphs.fast_path(model, x, config=config_for(device, inputs="copy", outputs="alias")) for _ in range(2)
        )
        run(x)
    assert cudagraphs.stats().bytes_held == 4 * x.nbytes, "an input and a result of each"
    run.close()
    assert cudagraphs.stats().bytes_held == 2 * x.nbytes
    del other
    gc.collect()
    assert cudagraphs.stats().bytes_held == 0


@on_cuda
def test_stats_and_explain_have_the_memory_of_pools(device):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).to(device)
    report = explain(device, model, torch.ones(64, 256, device=device))
    pools = {pool.what: pool for pool in report.pools}
    assert pools["forward graph"].bytes_used >= 64 * 256 * 4, "the tensors that are saved for the backward pass"
    assert pools["forward graph"].bytes_reserved >= pools["forward graph"].bytes_used
    assert "cuBLAS workspaces" in {pool.what for pool in cudagraphs.stats().pools}
    assert "memory pools" in rendered(report)


def test_a_report_lists_memory_pools():
    report = CudagraphReport(
        (), pools=(PoolMemory("forward graph", 0, 2 << 20, 1 << 20), PoolMemory("workspaces", 1, 8 << 20, 0))
    )
    text = rendered(report)
    assert "10.5 MB reserved" in text
    assert "cuda:1" in text
