"""What becomes of each graph, and what a user reads of it."""

from __future__ import annotations

import io
import json
import re

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
from rich.console import Console

from dynx import cudagraphs
from dynx.records.codec import from_data, to_data
from dynx.records.cudagraphs import CudagraphReport, GraphInput, GraphPlan, GraphUse


def explain(device, fn, *args, **config):
    return cudagraphs.explain(fn, *args, config=cudagraphs.Config(runtime=RUNTIMES[device], **config))


def screen(report):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(report)
    return console.export_text()


def heavy(x):
    return x.sin().cos().exp().tanh()


def test_inputs_copies_and_recordings(device):
    norm = torch.nn.BatchNorm1d(4).to(device)
    x = torch.randn(8, 4, device=device)
    with torch.no_grad():
        (graph,) = explain(device, lambda x: norm(x) * 2, x).graphs
    kinds = {each.name: (each.kind, each.is_mutated) for each in graph.plan.inputs}
    assert kinds["norm.weight"] == ("static", False)
    assert kinds["norm.running_mean"] == ("static", True)
    assert kinds["x"] == ("dynamic", False)
    assert (graph.recordings, graph.replays, graph.copies, graph.bytes_copied) == (1, 2, 1, x.nbytes)
    assert graph.bytes_held == 0, "what the graph copies itself lies where others may write"
    with torch.no_grad():
        (graph,) = explain(device, lambda x: norm(x) * 2, x, outputs="alias").graphs
    assert graph.bytes_held == x.nbytes, "the result"
    with torch.no_grad():
        (graph,) = explain(device, lambda x: norm(x) * 2, x, outputs="alias", inputs="copy").graphs
    assert graph.bytes_held == 2 * x.nbytes, "the result, and a copy of the input"


def test_backward_graphs_without_a_trace(device):
    model = torch.nn.Linear(4, 4, device=device)
    report = explain(device, model, torch.randn(2, 4, device=device))
    assert [(each.plan.part, each.recordings) for each in report.graphs] == [("forward", 1), ("backward", 1)]
    assert model.weight.grad is None
    assert repr(report) == "<CudagraphReport: 2 of 2 graphs captured>"


@pytest.mark.uncaptured
def test_a_skip_has_its_line_and_what_to_do(device):
    def function(x):
        return heavy(x)[x > 0].sum()  # HERE

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        report = explain(device, function, torch.randn(8, device=device), partition=False)
    (skip,) = report.graphs[0].plan.skips
    assert skip.location.line == function.__code__.co_firstlineno + 1
    assert skip.advice.startswith("make the size fixed")
    text = screen(report)
    assert "runs uncaptured" in text
    assert "gives a size that depends on values; make the size fixed: torch.where" in text


def test_pieces(device):
    def function(x):
        a = heavy(x)
        return heavy(a)[a > 0.6].sum(), heavy(a + 1)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        report = explain(device, function, torch.randn(8, device=device))
    assert any(not each.why_uncaptured for each in report.graphs[0].plan.pieces)
    assert "piece 1: " in screen(report)
    assert "launches, captured" in screen(report)


def test_why_an_input_is_not_patched(device):
    report = explain(device, lambda x: x.add_(1) * 2, torch.ones(3, device=device), inputs="patch")
    assert report.graphs[0].notes == ("inputs are copied, not patched: it changes something, so it cannot be tried",)
    assert "inputs are copied, not patched: it changes something" in screen(report)


def test_what_is_compiled_already(device):
    model = torch.compile(torch.nn.Linear(4, 4, device=device), backend="eager")
    with torch.no_grad():
        assert len(explain(device, model, torch.randn(2, 4, device=device)).graphs) == 1


def test_without_cuda_it_says_so(monkeypatch):
    monkeypatch.setattr("dynx.cudagraphs._runtime.select.has_cuda", lambda: False)
    model = torch.nn.Linear(2, 2)
    report = cudagraphs.explain(lambda x: model(x), torch.ones(1, 2))
    assert report.notes == ("there is no CUDA device: nothing is captured",)
    assert [each.name for each in report.graphs[0].plan.inputs if each.kind == "static"] == ["model.weight", "model.bias"]


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_it_is_a_record(device):
    report = explain(device, torch.nn.Linear(2, 2), torch.ones(1, 2))
    assert from_data(type(report), json.loads(json.dumps(to_data(report)))) == report
    assert "forward graph" in report._repr_html_()
    assert json.loads(report.to_json())["graphs"]


def test_the_graph_of_a_graph(device):
    """Each piece hangs together with those whose results it takes, and with the inputs that it reads."""

    def function(x, y):
        a = heavy(x)
        return heavy(a)[a > 0.6].sum() + heavy(y)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        report = explain(device, function, torch.randn(8, device=device), torch.randn(8, device=device))
    dot = report.to_dot()
    pieces = report.graphs[0].plan.pieces
    assert dot.count("style=dashed") == sum(bool(each.why_uncaptured) for each in pieces) > 0
    edges = set(re.findall(r"(\w+) -> (\w+);", dot))
    assert {target for _, target in edges} == {f"piece_0_{index}" for index in range(len(pieces))}
    made = {name: index for index, piece in enumerate(pieces) for name in piece.outputs}
    between = {(made[name], index) for index, piece in enumerate(pieces) for name in piece.inputs if name in made}
    assert {(f"piece_0_{one}", f"piece_0_{other}") for one, other in between} <= edges
    assert {source for source, _ in edges if source.startswith("input")} == {"input_0_0", "input_0_1"}
    assert dot.count("{") == dot.count("}")


def test_names_in_a_graph_are_quoted():
    plan = GraphPlan("inference", (GraphInput('x["a\\b"]', "dynamic", ""),), 1)
    dot = CudagraphReport((GraphUse(plan, 1, 0, 0, 0, 0),)).to_dot()
    assert r'label="x[\"a\\b\"]\ndynamic"' in dot
    assert "1 recording" in dot
