"""`probe`: what it can be set on, what it says where it cannot fire, and that it leaves nothing behind."""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import types

import pytest
import torch
from torch._dynamo import symbolic_convert

import dynx
from dynx.comptime import probe
from dynx.errors import DynxWarning, ProbeFailed


def helper(x):
    y = x + 1
    return y * 2


def program(x):
    y = helper(x)
    return y - 1


class Net(torch.nn.Module):
    def forward(self, x):
        return helper(x)


class Box:
    def method(self, x):
        return x + 1

    @staticmethod
    def static(x):
        return x + 2

    def __call__(self, x):
        return x + 3


def first_line(function):
    return function.__code__.co_firstlineno


@pytest.mark.parametrize("mode", ["hook", "rewrite"])
@pytest.mark.parametrize(
    ("target", "run", "function"),
    [
        (program, program, "program"),
        (helper, program, "helper"),
        (Net, Net(), "Net.forward"),
        (Net(), Net(), "Net.forward"),
        (Box.method, Box().method, "Box.method"),
        (Box().method, Box().method, "Box.method"),
        (Box.static, Box.static, "Box.static"),
        (functools.partial(program), program, "program"),
        (f"{__name__}:helper", program, "helper"),
        (f"{__name__}:Net", Net(), "Net.forward"),
        (f"{__file__}:{first_line(helper) + 1}", program, "helper"),
        (torch.compile(program), program, "program"),
    ],
    ids=lambda value: getattr(value, "__qualname__", "") or type(value).__name__,
)
def test_targets(target, run, function, mode, monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or types.ModuleType(__name__))
    if isinstance(target, str) and target.startswith(f"{__name__}:"):
        vars(sys.modules[__name__]).update(helper=helper, Net=Net)
    seen = []
    with probe(target, do=lambda ctx: seen.append(ctx.location.function), mode=mode) as armed:
        torch.compile(run, backend="eager")(torch.ones(3))
    assert seen == [function]
    assert armed.hits == 1
    assert armed.status == "removed"


def test_a_line_of_a_function():
    seen = []
    with probe(helper, first_line(helper) + 2, do=lambda ctx: seen.append(repr(ctx.local("y")))):
        torch.compile(program, backend="eager")(torch.ones(3))
    assert seen == ["Tensor(float32, [3])"]


def test_code_of_a_library():
    import torch.nn.utils.parametrize as library

    def f(x):
        return library.is_parametrized(torch.nn.Identity()) or x + 1

    with probe("torch.nn.utils.parametrize:is_parametrized", do=lambda ctx: None) as armed:
        torch.compile(f, backend="eager")(torch.ones(3))
    assert armed.hits == 1


def test_without_do_the_locals_are_logged():
    with dynx.watch() as w, probe(helper, first_line(helper) + 2):
        torch.compile(program, backend="eager")(torch.ones(3))
    (event,) = w.logs
    assert event.values["y"] == "Tensor(float32, [3])"
    assert event.location.function == "helper"


def test_when_decides():
    with probe(helper, when=lambda ctx: ctx.local("x").size(0) == 4, do=lambda ctx: None) as armed:
        torch.compile(program, backend="eager", dynamic=False)(torch.ones(3))
        assert (armed.hits, armed.status) == (0, "armed")
        torch.compile(program, backend="eager", dynamic=False)(torch.ones(4))
        assert (armed.hits, armed.status) == (1, "hit")


@pytest.mark.parametrize("mode", ["hook", "rewrite"])
def test_a_break_at_the_line(mode):
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append([node.target.__name__ for node in graph_module.graph.nodes if node.op == "call_function"])
        return graph_module.forward

    with probe(helper, first_line(helper) + 2, do=lambda ctx: ctx.graph_break(), mode=mode) as armed:
        result = torch.compile(program, backend=backend)(torch.ones(3))
    assert torch.equal(result, program(torch.ones(3)))
    assert graphs == [["add"], ["mul"], ["sub"]]
    assert armed.hits == 1


def test_facts_at_the_line():
    torch._dynamo.config.capture_scalar_outputs = True

    def f(t, x):
        u = (t + 0).item()
        if u > 4:
            return x + 1
        return x - 1

    with probe(f, first_line(f) + 2, do=lambda ctx: ctx.check(ctx.local("u") > 4)):
        assert torch.compile(f, backend="eager", fullgraph=True)(torch.tensor(5), torch.ones(1)).item() == 2


@pytest.mark.parametrize(
    ("target", "line", "message"),
    [
        (len, None, r"len has no Python code to stop in: it is a builtin_function_or_method\n  set the probe on the line"),
        (torch.nn.functional.layer_norm, None, r"layer_norm is never traced: torch puts it into the graph as a whole"),
        (torch._dynamo.disable(helper), None, r"never traced"),
        (helper, first_line(program) + 1, r"line \d+ is not in helper, which is lines \d+ to \d+ of "),
        (f"{__file__}:4", None, r"there is no code at .*test_probe.py:4\n  the nearest is line \d"),
        ("nowhere.py:3", None, r"there is no file nowhere.py\n"),
        ("json:nothing", None, r"AttributeError"),
        ("helper", None, r'write "file.py:12" or "package.module:function"'),
        ("no_such_package:f", None, r"ModuleNotFoundError"),
    ],
    ids=lambda value: getattr(value, "__qualname__", "") or type(value).__name__,
)
def test_what_cannot_fire_is_told_when_it_is_set(target, line, message):
    with pytest.raises(ProbeFailed, match=message):
        probe(target, line)


def test_compiled_code_needs_a_reset_and_is_told():
    run = torch.compile(program, backend="eager")
    run(torch.ones(3))
    with pytest.warns(DynxWarning, match=r"is compiled already.*\n.*torch._dynamo.reset\(\), or use .*mode=\"rewrite\""):
        armed = probe(program, do=lambda ctx: None)
    run(torch.ones(3))
    assert armed.hits == 0
    torch._dynamo.reset()
    run(torch.ones(3))
    assert armed.hits == 1
    armed.remove()


def test_rewriting_needs_no_reset_and_gives_the_old_cache_back():
    run = torch.compile(program, backend="eager")
    code = program.__code__
    with dynx.watch() as w:
        run(torch.ones(3))
        with probe(program, do=lambda ctx: None, mode="rewrite") as armed:
            run(torch.ones(3))
            run(torch.ones(3))
        run(torch.ones(3))
    assert armed.hits == 1
    assert len(w.compiles) == 2
    assert program.__code__ is code
    assert not [name for name in program.__globals__ if name.startswith("__dynx_probe")]


def test_the_name_goes_with_the_code_that_calls_it():
    probe(helper, mode="rewrite").remove()
    before = {name for name in vars(builtins) if name.startswith("__dynx_probe")}
    with probe(helper, mode="rewrite"):
        assert len({name for name in vars(builtins) if name.startswith("__dynx_probe")}) == len(before) + 1
    gc.collect()
    assert {name for name in vars(builtins) if name.startswith("__dynx_probe")} == before


def test_nothing_is_wrapped_when_no_probe_is_armed():
    originals = {name: vars(symbolic_convert.InstructionTranslatorBase)[name] for name in ("run", "step", "starts_line")}
    first, second = probe(helper), probe(program)
    assert symbolic_convert.InstructionTranslatorBase.run is not originals["run"]
    first.remove()
    first.remove()
    second.remove()
    assert all(vars(symbolic_convert.InstructionTranslatorBase)[name] is raw for name, raw in originals.items())


def test_a_probe_that_fails_names_the_line():
    with probe(helper, do=lambda ctx: 1 / 0), pytest.raises(dynx.errors.ComptimeFailed, match=r"ZeroDivisionError"):
        torch.compile(program, backend="eager")(torch.ones(3))
    with probe(helper, do=lambda ctx: 1 / 0, on_error="record"), dynx.watch() as w:
        torch.compile(program, backend="eager")(torch.ones(3))
    assert "ZeroDivisionError" in w.troubles[0].why


def test_two_probes_on_one_line_both_fire():
    order = []
    with probe(helper, do=lambda ctx: order.append(1)), probe(helper, do=lambda ctx: order.append(2)):
        torch.compile(program, backend="eager")(torch.ones(3))
    assert order == [1, 2]


class TestRewrittenCode:
    """What still runs after a probe was taken away must run."""

    def test_a_closure_made_meanwhile(self):
        def outer(k):
            def inner(x):
                return x + k

            return inner

        armed = probe(outer, first_line(outer) + 2, mode="rewrite", do=lambda ctx: None)
        made = outer(1)
        armed.remove()
        assert made(torch.ones(1)).item() == 2

    def test_a_generator_under_way(self):
        def numbers():
            yield 1
            yield 2

        armed = probe(numbers, first_line(numbers) + 2, mode="rewrite", do=lambda ctx: None)
        under_way = numbers()
        next(under_way)
        armed.remove()
        assert list(under_way) == [2]

    def test_two_taken_away_in_the_order_they_came(self):
        code = program.__code__
        first = probe(program, mode="rewrite", do=lambda ctx: None)
        second = probe(program, mode="rewrite", do=lambda ctx: None)
        first.remove()
        torch.compile(program, backend="eager")(torch.ones(1))
        assert (first.hits, second.hits) == (0, 1)
        second.remove()
        assert program.__code__ is code
        assert program(torch.ones(1)).item() == 3


def test_a_probe_may_take_itself_away():
    """The attempts of one compilation must find the same probes, or torch loses its place."""

    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    armed = probe(f, first_line(f) + 1, do=lambda ctx: armed.remove())
    run = torch.compile(f, backend="eager")
    assert run(torch.ones(1)).item() == 4
    assert armed.status == "removed"
    assert symbolic_convert.InstructionTranslatorBase.run.__name__ == "run"


def test_another_function_with_the_same_name_and_line_is_not_meant():
    one, other = (lambda x: x + 1), (lambda x: x * 2)
    with probe(one, do=lambda ctx: None) as armed:
        torch.compile(other, backend="eager")(torch.ones(1))
    assert armed.hits == 0


def test_a_module_with_a_forward_of_its_own():
    net = torch.nn.Linear(1, 1)
    net.forward = helper
    with probe(net, do=lambda ctx: None) as armed:
        torch.compile(net, backend="eager")(torch.ones(1))
    assert armed.hits == 1


def test_the_line_of_a_def_is_where_the_function_begins():
    with probe(helper, first_line(helper), do=lambda ctx: None) as armed:
        torch.compile(program, backend="eager")(torch.ones(1))
    assert armed.hits == 1


def test_options_are_looked_at():
    with pytest.raises(ProbeFailed, match="give one of hook, rewrite and one of raise, warn, record"):
        probe(helper, mode="rewite")
