"""`watch(detail="full")` records the guards and the graph code of each compilation: in bounded size and as plain data."""

from __future__ import annotations

import json
import types

import pytest
import torch
from fingerprint import alive, fingerprint

import dynx
from dynx import Run
from dynx._trace import compile_details
from dynx.records import CompiledGuards, GraphCode


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2

    def forward(self, x):
        y = x.sin() * self.scale
        return y + self.scale


LINE = Net.forward.__code__.co_firstlineno


def broken(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y.relu()


def nested(xs, scale):
    def inner(x):
        return x * scale["by"]

    total = inner(xs[0])
    for x in xs[1:]:
        total = total + inner(x)
    return total, len(xs)


def watched(fn, *args, **kwargs):
    with dynx.watch(detail="full", **kwargs) as w:
        torch.compile(fn, backend="eager")(*args)
    return w.run


def test_full_detail_guards_have_the_source_expected_value_and_requesting_lines():
    run = watched(Net(), torch.ones(2))
    (compiled,) = run.guards
    assert compiled.key == run.compiles[0].key
    assert compiled.location == run.compiles[0].location
    (scale,) = [guard for guard in compiled.guards if guard.source == "self.scale"]
    assert (scale.kind, scale.expected, scale.type) == ("value", "2", "EQUALS_MATCH")
    assert [line.line for line in scale.requesters] in ([LINE + 1, LINE + 2], [LINE + 1])  # torch 2.11 requests the guard once
    assert scale.location == scale.requesters[0]
    (tensor,) = [guard for guard in compiled.guards if guard.source == "x" and guard.kind == "tensor"]
    assert tensor.expected.startswith("float32, [2]")
    assert any(guard.kind == "global_state" for guard in compiled.guards)
    assert compiled.omitted == 0


def test_full_detail_graph_code_names_the_source_line_of_each_node():
    (graph,) = watched(Net(), torch.ones(2)).graph_code
    lines = {line.text.split(" = ")[1].split(";")[0]: line.location.line for line in graph.lines if " = " in line.text}
    assert lines["l_x_.sin()"] == LINE + 1
    assert lines["y + 2"] == LINE + 2
    assert graph.lines[-1].location is None
    assert graph.code.startswith("def forward(self, L_x_")
    assert {line.location.function for line in graph.lines if line.location} == {"Net.forward"}


def test_each_compilation_has_its_own_guards_and_graph_code():
    """The resume function after a graph break is a compilation of its own; a discarded attempt is not."""
    run = watched(broken, torch.ones(2))
    keys = [compile.key for compile in run.compiles]
    assert [graph.key for graph in run.graph_code] == keys
    assert [compiled.key for compiled in run.guards] == keys
    first, resumed = run.graph_code
    assert "relu" not in first.code
    assert "relu" in resumed.code


def test_failed_compilation_has_no_guards_and_no_graph_code():
    def backend(graph_module, inputs):
        raise RuntimeError("no such device")

    with dynx.watch(detail="full") as w, pytest.raises(Exception, match="no such device"):
        torch.compile(Net(), backend=backend)(torch.ones(2))
    assert w.compiles[0].outcome == "failed"
    assert (w.guards, w.graph_code) == ((), ())


def test_watch_records_no_guards_and_no_graph_code_by_default():
    with dynx.watch() as w:
        torch.compile(Net(), backend="eager")(torch.ones(2))
    assert (w.guards, w.graph_code) == ((), ())


def test_full_detail_of_one_watch_adds_no_guards_or_graph_code_to_another_watch():
    with dynx.watch() as plain, dynx.watch(detail="full") as full:
        torch.compile(Net(), backend="eager")(torch.ones(2))
    assert len(full.guards) == len(full.graph_code) == 1
    assert (plain.guards, plain.graph_code) == ((), ())


def test_guards_and_graph_code_are_saved_in_the_run_file_and_the_json(tmp_path):
    run = watched(broken, torch.ones(2), out=tmp_path / "run.dynx")
    assert Run.load(tmp_path / "run.dynx") == run
    groups = json.loads(run.to_json())
    assert [compiled["type"] for compiled in groups["guards"]] == ["compiled_guards"] * 2
    assert [graph["type"] for graph in groups["graph_code"]] == ["graph_code"] * 2


def test_guards_and_graph_code_above_the_size_limits_are_omitted_and_counted(monkeypatch, tmp_path):
    """A run file must not grow without bound, and has to say how much was omitted."""
    whole = watched(Net(), torch.ones(2))
    monkeypatch.setattr(compile_details, "_MAX_GUARDS", 3)
    monkeypatch.setattr(compile_details, "_MAX_REQUESTERS", 1)
    monkeypatch.setattr(compile_details, "_MAX_TEXT", 10)
    monkeypatch.setattr(compile_details, "_MAX_CODE", 60)
    torch._dynamo.reset()
    cut = watched(Net(), torch.ones(2))
    assert len(cut.guards[0].guards) == 3
    assert cut.guards[0].omitted == len(whole.guards[0].guards) - 3
    assert max(len(guard.text) for guard in cut.guards[0].guards) == 11
    assert max(len(guard.requesters) for guard in cut.guards[0].guards) <= 1
    assert cut.graph_code[0].omitted == len(whole.graph_code[0].lines) - len(cut.graph_code[0].lines) > 0


PROGRAMS = {
    "module": (Net().forward, (torch.ones(2, 3),)),
    "break": (broken, (torch.ones(2),)),
    "nested": (nested, ([torch.ones(2), torch.ones(2, requires_grad=True)], {"by": 3})),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_full_detail_watch_changes_no_graph_bytecode_or_guard(name):
    function, args = PROGRAMS[name]
    function = getattr(function, "__func__", function)
    args = (Net(), *args) if name == "module" else args
    fingerprint(function, args, dynx.watch())  # torch caches some of what it has traced once
    plain = fingerprint(function, args, dynx.watch())
    watch = dynx.watch(detail="full")
    assert fingerprint(function, args, watch) == plain
    assert watch.guards
    assert watch.graph_code


@pytest.mark.slow
def test_full_detail_watch_keeps_no_tensor_or_translator_of_torch_alive():
    def growth(observer):
        before = alive()
        with observer:
            for size in (2, 3, 4):
                torch.compile(broken, backend="eager")(torch.ones(size))
        return alive() - before

    growth(dynx.watch())  # torch warms up
    plain = growth(dynx.watch())
    watch = dynx.watch(detail="full")
    assert growth(watch) <= plain
    assert len(watch.guards) >= 4


def test_guards_and_graph_code_records_hold_only_plain_data():
    run = watched(nested, *PROGRAMS["nested"][1])
    plain = (str, int, float, bool, type(None), tuple, dict, types.MappingProxyType)

    def check(value):
        if isinstance(value, plain):
            for item in value if isinstance(value, tuple) else ():
                check(item)
        else:
            assert type(value).__module__.startswith("dynx.records"), type(value)
            for name in value.__dataclass_fields__:
                check(getattr(value, name))

    records = [record for record in run.events if isinstance(record, CompiledGuards | GraphCode)]
    assert len(records) == 2
    for record in records:
        check(record)


def test_failure_to_read_guards_or_graph_code_is_recorded_and_the_program_continues(monkeypatch):
    def fails(*args):
        raise TypeError("no such field")

    monkeypatch.setattr(compile_details, "tree_of", fails)
    monkeypatch.setattr("dynx._torch.tracing.graph_code.code_lines", fails)
    with dynx.watch(detail="full") as w:
        assert torch.compile(Net(), backend="eager")(torch.zeros(2)).tolist() == [2, 2]
    assert {(trouble.what, trouble.why) for trouble in w.troubles} == {
        ("guards and graph code", "TypeError: no such field"),
        ("graph code", "TypeError: no such field"),
    }
