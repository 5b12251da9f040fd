"""Capture plans cached on disk: same plan and same messages, without analysing the graph again."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import warnings

import pytest
import torch
from support import configs
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._compiled import backend, observers
from dynx.errors import DynxWarning
from dynx.records.codec import to_data

PROGRAM = """
import sys, torch
from dynx import cudagraphs
from dynx.cudagraphs._compiled import backend
if "again" in sys.argv:
    backend.plan_of = backend.describe_pieces = None
torch._dynamo.config.capture_dynamic_output_shape_ops = True
layer = torch.nn.Linear(4, 4)

def program(x):
    y = layer(x).sin().cos().tanh()
    return (y * y.nonzero().sum()).exp().sin().cos()

x, config = torch.ones(3, 4), cudagraphs.Config(runtime="emulator", plan_dir=sys.argv[1])
report = cudagraphs.explain(program, x, config=config)
print(report.to_json())
print(cudagraphs.stats().skips[0].reason)
run = torch.compile(program, backend=cudagraphs.backend(config))
for _ in range(3):
    torch.testing.assert_close(run(x), program(x))
"""


@pytest.mark.slow
def test_second_process_reads_the_cached_plan(tmp_path, capsys, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [str(program), str(tmp_path / "plans")]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(torch._dynamo.config, "capture_dynamic_output_shape_ops", False)  # the program sets it
    cudagraphs.reset()
    runpy.run_path(str(program), run_name="__main__")
    first = capsys.readouterr().out
    command = [sys.executable, *arguments, "again"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == first
    plans = [graph["plan"] for graph in json.JSONDecoder().raw_decode(first)[0]["graphs"]]
    assert [(plan["part"], "pieces" in plan) for plan in plans] == [("forward", True), ("backward", False)]


@pytest.fixture
def compiled(device, tmp_path, monkeypatch):
    """Compile with a plan folder; also return the list of plans that were computed instead of read."""
    plans, plan_of = [], backend.plan_of

    def plan_and_record(*args):
        plans.append(plan_of(*args))
        return plans[-1]

    monkeypatch.setattr("dynx.cudagraphs._compiled.backend.plan_of", plan_and_record)

    def compile(fn, folder=tmp_path, **options):
        torch._dynamo.reset()
        plans.clear()
        return configs.compiled(fn, device, plan_dir=str(folder), **options), plans

    return compile


def plan_and_result(run, *args):
    with observers.compiled_graphs() as graphs, torch.no_grad():
        for _ in range(3):
            result = run(*args)
    (graph,) = graphs
    return to_data(graph.use().plan), result


def test_plan_read_from_the_cache_equals_the_computed_plan(device, compiled):
    layer, x = nn.Linear(4, 4).to(device), torch.ones(2, 4, device=device)
    actual = []
    for count in (1, 0):
        run, plans = compiled(lambda x: layer(x).sin())
        plan, result = plan_and_result(run, x)
        actual.append(plan)
        assert len(plans) == count
        torch.testing.assert_close(result, layer(x).sin())
    assert actual[0] == actual[1]


def test_different_graphs_options_and_sizes_miss_the_plan_cache(device, compiled):
    x = torch.ones(2, 4, device=device)

    def function(operator, number):
        return lambda x: operator(x) + number

    for operator, number, options in (
        (torch.sin, 1, {}),
        (torch.cos, 1, {}),
        (torch.cos, 2, {}),
        (torch.cos, 2, {"partition": False}),
    ):
        for expected in (1, 0):
            run, plans = compiled(function(operator, number), **options)
            plan_and_result(run, x)
            assert len(plans) == expected
    run, plans = compiled(function(torch.cos, 2))
    plan_and_result(run, x[:1])
    assert len(plans) == 1, "another size"


@pytest.mark.uncaptured
def test_changed_operator_tags_miss_the_plan_cache(device, compiled):
    x = torch.ones(3, device=device)
    for tags in ((), (torch.Tag.cudagraph_unsafe,)):
        with torch.library._scoped_library("dynx_plans", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor", tags=tags)
            library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
            run, plans = compiled(lambda x: torch.ops.dynx_plans.twice(x), partition=False)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", DynxWarning)
                run(x)
            assert len(plans) == 1
            assert len(caught) == len(tags)


@pytest.mark.uncaptured
def test_cached_plan_gives_the_same_warnings_as_a_computed_plan(device, compiled, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "capture_dynamic_output_shape_ops", True)
    x = torch.ones(3, device=device)
    messages = []
    for _ in range(2):
        run, plans = compiled(torch.nonzero, partition=False)
        with pytest.warns(DynxWarning, match="returns a size that depends on values") as caught:
            run(x)
        messages.append([str(warning.message) for warning in caught])
    assert plans == []
    assert messages[0] == messages[1]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"dynx cudagraph plan": {}}', "plan", "\udcff"])
def test_corrupt_plan_files_warn_and_are_rewritten(device, compiled, tmp_path, text):
    x = torch.ones(3, device=device)
    first, _ = plan_and_result(compiled(torch.sin)[0], x)
    (path,) = tmp_path.iterdir()
    path.write_text(text, errors="surrogateescape")
    run, plans = compiled(torch.sin)
    with pytest.warns(DynxWarning, match="is not a plan of this graph, and is written again"):
        assert plan_and_result(run, x)[0] == first
    assert len(plans) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", DynxWarning)
        run, plans = compiled(torch.sin)
        assert plan_and_result(run, x)[0] == first
    assert plans == []


def test_cached_plan_with_node_names_of_another_graph_is_not_used(device, compiled, tmp_path):
    x = torch.ones(3, device=device)
    plan_and_result(compiled(torch.sin)[0], x)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"node": "', '"node": "other_'))
    with pytest.warns(DynxWarning, match="the nodes in the plan are those of another graph"):
        plan_and_result(compiled(torch.sin)[0], x)


def test_unwritable_plan_dir_warns(device, compiled, tmp_path):
    (tmp_path / "file").write_text("")
    run, _ = compiled(torch.sin, folder=tmp_path / "file" / "plans")
    with pytest.warns(DynxWarning, match="was not stored.*\n  name a writable folder with plan_dir="):
        _, result = plan_and_result(run, torch.ones(3, device=device))
    torch.testing.assert_close(result, torch.ones(3, device=device).sin())
