"""Plans that are kept in a folder: the same plan and the same messages, without another look at the graph."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import warnings

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
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
    backend.plan_of = backend.described_pieces = None
torch._dynamo.config.capture_dynamic_output_shape_ops = True
layer = torch.nn.Linear(4, 4)

def program(x):
    y = layer(x).sin().cos().tanh()
    return (y * y.nonzero().sum()).exp().sin().cos()

x, config = torch.ones(3, 4), cudagraphs.Config(runtime="emulator", plans=sys.argv[1])
report = cudagraphs.explain(program, x, config=config)
print(report.to_json())
print(cudagraphs.stats().skips[0].reason)
run = torch.compile(program, backend=cudagraphs.backend(config))
for _ in range(3):
    torch.testing.assert_close(run(x), program(x))
"""


def test_a_second_process(tmp_path, capsys, monkeypatch):
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
    plans = [each["plan"] for each in json.JSONDecoder().raw_decode(first)[0]["graphs"]]
    assert [(each["part"], "pieces" in each) for each in plans] == [("forward", True), ("backward", False)]


@pytest.fixture
def compiled(device, tmp_path, monkeypatch):
    """Compile with plans in a folder; gives also the plans that graphs were looked at for."""
    found, plan_of = [], backend.plan_of

    def look(*args):
        found.append(plan_of(*args))
        return found[-1]

    monkeypatch.setattr("dynx.cudagraphs._compiled.backend.plan_of", look)

    def compile(fn, folder=tmp_path, **config):
        torch._dynamo.reset()
        found.clear()
        config = cudagraphs.Config(runtime=RUNTIMES[device], plans=str(folder), **config)
        return torch.compile(fn, backend=cudagraphs.backend(config)), found

    return compile


def used(run, *args):
    with observers.graphs() as heard, torch.no_grad():
        for _ in range(3):
            result = run(*args)
    (graph,) = heard
    return to_data(graph.use().plan), result


def test_the_plan_is_the_same(device, compiled):
    layer, x = nn.Linear(4, 4).to(device), torch.ones(2, 4, device=device)
    found = []
    for count in (1, 0):
        run, looked = compiled(lambda x: layer(x).sin())
        plan, result = used(run, x)
        found.append(plan)
        assert len(looked) == count
        torch.testing.assert_close(result, layer(x).sin())
    assert found[0] == found[1]


def test_another_graph_has_another(device, compiled):
    x = torch.ones(2, 4, device=device)

    def function(operator, number):
        return lambda x: operator(x) + number

    for operator, number, more in (
        (torch.sin, 1, {}),
        (torch.cos, 1, {}),
        (torch.cos, 2, {}),
        (torch.cos, 2, {"partition": False}),
    ):
        for expected in (1, 0):
            run, looked = compiled(function(operator, number), **more)
            used(run, x)
            assert len(looked) == expected
    run, looked = compiled(function(torch.cos, 2))
    used(run, x[:1])
    assert len(looked) == 1, "another size"


@pytest.mark.uncaptured
def test_an_operator_that_was_tagged_since(device, compiled):
    x = torch.ones(3, device=device)
    for tags in ((), (torch.Tag.cudagraph_unsafe,)):
        with torch.library._scoped_library("dynx_plans", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor", tags=tags)
            library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
            run, looked = compiled(lambda x: torch.ops.dynx_plans.twice(x), partition=False)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", DynxWarning)
                run(x)
            assert len(looked) == 1
            assert len(told) == len(tags)


@pytest.mark.uncaptured
def test_what_is_said_is_the_same(device, compiled, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "capture_dynamic_output_shape_ops", True)
    x = torch.ones(3, device=device)
    said = []
    for _ in range(2):
        run, looked = compiled(torch.nonzero, partition=False)
        with pytest.warns(DynxWarning, match="gives a size that depends on values") as caught:
            run(x)
        said.append([str(each.message) for each in caught])
    assert looked == []
    assert said[0] == said[1]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"dynx cudagraph plan": {}}', "plan", "\udcff"])
def test_a_file_that_is_no_plan_is_written_anew(device, compiled, tmp_path, text):
    x = torch.ones(3, device=device)
    first, _ = used(compiled(torch.sin)[0], x)
    (path,) = tmp_path.iterdir()
    path.write_text(text, errors="surrogateescape")
    run, looked = compiled(torch.sin)
    with pytest.warns(DynxWarning, match="no plan of this graph, and is written anew"):
        assert used(run, x)[0] == first
    assert len(looked) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", DynxWarning)
        run, looked = compiled(torch.sin)
        assert used(run, x)[0] == first
    assert looked == []


def test_a_plan_of_other_nodes_is_not_taken(device, compiled, tmp_path):
    x = torch.ones(3, device=device)
    used(compiled(torch.sin)[0], x)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"node": "', '"node": "other_'))
    with pytest.warns(DynxWarning, match="its nodes are others"):
        used(compiled(torch.sin)[0], x)


def test_a_folder_that_cannot_be_written_to(device, compiled, tmp_path):
    (tmp_path / "file").write_text("")
    run, _ = compiled(torch.sin, folder=tmp_path / "file" / "plans")
    with pytest.warns(DynxWarning, match="was not kept.*\n  name a folder that can be written to"):
        _, result = used(run, torch.ones(3, device=device))
    torch.testing.assert_close(result, torch.ones(3, device=device).sin())
