"""`timeline` attributes the costs of tracing to the right lines and leaves the compilation unchanged."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import defaultdict

import pytest
import torch
from fingerprint import fingerprint
from torch._dynamo import symbolic_convert
from torch._dynamo.output_graph import OutputGraph
from torch.utils.checkpoint import checkpoint

from dynx.comptime import comptime, timeline
from dynx.errors import UsageError


def helper(x):
    y = x.sin()
    return y + 1


def program(x, n):
    a = x * n
    b = helper(a)
    try:
        raise ValueError
    except ValueError:
        b = b + 2
    return b


def line(function, offset):
    return function.__code__.co_firstlineno + offset


def cost_at(tl, function, offset):
    """Return the cost of the line `offset` lines after the first of a function."""
    (cost,) = [cost for cost in tl.by_line() if cost.location.line == line(function, offset)]
    return cost


def test_timeline_attributes_nodes_guards_and_exceptions_to_their_lines():
    with timeline() as tl:
        torch.compile(program, backend="eager")(torch.ones(3), 2)
    assert cost_at(tl, program, 1).nodes == ("a",), "the name in the graph that the backend gets"
    assert cost_at(tl, helper, 1).nodes == ("y",)
    assert len(cost_at(tl, helper, 2).nodes) == 1
    assert cost_at(tl, program, 2).nodes == (), "a line that inlines a function has only its own nodes"
    assert "L['x']" in [guard.source for guard in cost_at(tl, program, 1).guards]
    assert cost_at(tl, program, 4).exceptions == 1
    assert cost_at(tl, program, 1).source == "    a = x * n"
    assert cost_at(tl, program, 1).instructions >= 3


def late_inputs(x, y, z):
    a = x.sin()
    b = a + y
    c = b * z + y
    return c.cos()


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        self.norm = torch.nn.LayerNorm(3)

    def forward(self, x, y, z):
        a = self.layers(x)
        b = self.norm(a) + y
        return b * z


def unused_results(x, y, z):
    a = x * y
    _ = (a + z).sum()
    return [each + z for each in sorted([a, y], key=id)[:1]]


def recomputed(x, y, z):
    a = checkpoint(helper, x * y, use_reentrant=False)
    b = torch.cond(a.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (a,))
    return b + z


@pytest.mark.parametrize("program", [late_inputs, Layers(), unused_results, recomputed])
def test_timeline_gives_every_node_of_the_final_graph_to_the_line_of_this_file_that_led_to_it(program):
    """FX remembers the stack of each node: its last line in this file is the line that led to it."""
    graphs = []
    with timeline() as tl:
        torch.compile(program, backend=lambda gm, _: graphs.append(gm) or gm.forward)(*(torch.ones(2, 3) for _ in range(3)))
    expected, found = defaultdict(set), defaultdict(set)
    for gm in graphs:
        for graph in (each.graph for each in gm.modules() if isinstance(each, torch.fx.GraphModule)):
            for node in graph.nodes:
                lines = re.findall(rf'File "{re.escape(__file__)}", line (\d+)', node.meta.get("stack_trace") or "")
                if node.op not in ("placeholder", "output") and lines:
                    expected[int(lines[-1])].add(node.name)
    for cost in tl.by_line():
        if cost.nodes:
            found[cost.location.line] |= set(cost.nodes)
    assert found == expected


def test_timeline_with_internals_gives_nodes_to_the_lines_of_torch():
    with timeline() as tl:
        torch.compile(Layers(), backend="eager")(*(torch.ones(2, 3) for _ in range(3)))
    files = {cost.location.file for cost in tl.by_line(internals=True) if cost.nodes}
    assert any("torch/nn/modules" in file for file in files)
    user = [name for cost in tl.by_line() for name in cost.nodes]
    assert sorted(user) == sorted(name for cost in tl.by_line(internals=True) for name in cost.nodes)


def test_timeline_seconds_of_a_line_exclude_the_functions_it_inlines():
    def slow(x):
        comptime.sleep(0.2)
        return x + 1

    def f(x):
        y = slow(x)
        return y * 2

    with timeline() as tl:
        torch.compile(f, backend="eager")(torch.ones(3))
    caller = cost_at(tl, f, 1)
    assert caller.cumulative - caller.seconds > 0.2
    assert sum(cost.seconds for cost in tl.by_line(internals=True)) == pytest.approx(tl.seconds)


def test_timeline_counts_backend_seconds_apart_from_tracing_seconds():
    def backend(graph_module, example_inputs):
        time.sleep(0.3)
        return graph_module.forward

    start = time.perf_counter()
    with timeline() as tl:
        torch.compile(helper, backend=backend)(torch.ones(3))
    wall = time.perf_counter() - start
    (compilation,) = tl.compiles
    assert compilation.backend > 0.3
    assert sum(cost.seconds for cost in tl.by_line()) < wall - 0.3


def test_timeline_counts_seconds_of_discarded_attempts_as_wasted():
    def f(x):
        y = x + 1
        comptime.sleep(0.1)
        torch._dynamo.graph_break()
        return y * 2

    with timeline() as tl:
        torch.compile(f, backend="eager")(torch.ones(3))
    first, resumed = tl.compiles
    assert (first.attempts, resumed.attempts) == (2, 1)
    assert first.wasted > 0.1
    assert resumed.wasted == 0
    assert tl.wasted == first.wasted
    assert cost_at(tl, f, 1).nodes == ("y",), "nodes of a discarded attempt are not counted"
    assert cost_at(tl, f, 4).location.function.endswith("f"), "a resume function has the name of its function"


def test_timeline_guard_origins_are_all_lines_that_requested_the_guard():
    """torch keeps only the first of these lines."""

    def f(x):
        y = x + 1
        z = x.size(0)
        return y * z + x

    with timeline() as tl:
        torch.compile(f, backend="eager")(torch.ones(3))
    assert {origin.line for origin in tl.guard_origins("L['x']")} == {origin.line for origin in tl.guard_origins("x")}
    assert line(f, 1) in {origin.line for origin in tl.guard_origins("x")}
    assert tl.guard_origins("nothing") == ()


def test_timeline_attributes_shape_guards_to_their_line():
    def f(x):
        y = x + 1
        if x.size(0) > 2:
            y = y * 2
        return y

    with timeline() as tl:
        torch.compile(f, backend="eager", dynamic=True)(torch.ones(4))
    assert any("> 2" in text or "2 <" in text or ">= 3" in text for text in cost_at(tl, f, 2).shape_guards)


def test_timeline_separates_compilations_that_have_the_same_compile_id():
    with timeline() as tl:
        for _ in range(2):
            torch._dynamo.reset()
            torch.compile(helper, backend="eager")(torch.ones(3))
    assert [compilation.id for compilation in tl.compiles] == ["0/0", "0/0"]
    assert cost_at(tl, helper, 1).nodes == ("y", "y")


def test_timeline_changes_no_graph_bytecode_or_guard():
    args = (torch.ones(3), 2)
    plain = fingerprint(program, args, contextlib.nullcontext())
    assert plain[0]
    assert plain[2]
    assert fingerprint(program, args, timeline()) == plain


def test_leaving_timeline_restores_the_hooked_methods_of_torch():
    step, call_user_compiler = symbolic_convert.InstructionTranslatorBase.step, OutputGraph.call_user_compiler
    with timeline(), timeline() as inner:
        torch.compile(helper, backend="eager")(torch.ones(3))
    assert symbolic_convert.InstructionTranslatorBase.step is step
    assert OutputGraph.call_user_compiler is call_user_compiler
    assert cost_at(inner, helper, 1).nodes == ("y",)


def test_timeline_is_exported_as_json_and_html():
    with timeline() as tl:
        torch.compile(program, backend="eager")(torch.ones(3), 2)
    data = json.loads(tl.to_json())
    assert len(data["compiles"]) == 1
    assert all(cost["location"]["line"] > 0 for cost in data["lines"])
    page = tl._repr_html_()
    assert "a = x * n" in page
    assert "nodes: a" in page


def test_exception_of_the_program_propagates_through_timeline():
    def f(x):
        x.add_(1)
        raise KeyError("key")

    with timeline() as tl, pytest.raises(KeyError):
        torch.compile(f, backend="eager")(torch.ones(3))
    assert tl.by_line()


def test_entering_a_timeline_twice_raises():
    with timeline() as tl, pytest.raises(UsageError, match="is open already"):
        tl.__enter__()
