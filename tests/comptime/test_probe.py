"""`dynx.comptime.probe`: its targets, its errors for targets that cannot fire, and what its removal restores."""

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
from dynx.errors import DynxWarning, ProbeFailed, UsageError


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
        (torch.compile(Net()), Net(), "Net.forward"),
    ],
    ids=lambda value: getattr(value, "__qualname__", "") or type(value).__name__,
)
def test_probe_fires_on_every_kind_of_target(target, run, function, mode, monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or types.ModuleType(__name__))
    if isinstance(target, str) and target.startswith(f"{__name__}:"):
        vars(sys.modules[__name__]).update(helper=helper, Net=Net)
    functions = []
    with probe(target, do=lambda ctx: functions.append(ctx.location.function), mode=mode) as armed:
        torch.compile(run, backend="eager")(torch.ones(3))
    assert functions == [function]
    assert armed.hits == 1
    assert armed.status == "removed"


def test_probe_fires_at_a_line_of_a_function():
    values = []
    with probe(helper, first_line(helper) + 2, do=lambda ctx: values.append(repr(ctx.local("y")))):
        torch.compile(program, backend="eager")(torch.ones(3))
    assert values == ["Tensor(float32, [3])"]


def test_probe_fires_in_library_code():
    import torch.nn.utils.parametrize as library

    def f(x):
        return library.is_parametrized(torch.nn.Identity()) or x + 1

    with probe("torch.nn.utils.parametrize:is_parametrized", do=lambda ctx: None) as armed:
        torch.compile(f, backend="eager")(torch.ones(3))
    assert armed.hits == 1


def test_probe_without_a_callback_logs_the_locals():
    with dynx.watch() as w, probe(helper, first_line(helper) + 2):
        torch.compile(program, backend="eager")(torch.ones(3))
    (event,) = w.logs
    assert event.values["y"] == "Tensor(float32, [3])"
    assert event.location.function == "helper"


def test_probe_fires_only_if_its_when_condition_is_true():
    with probe(helper, when=lambda ctx: ctx.local("x").size(0) == 4, do=lambda ctx: None) as armed:
        torch.compile(program, backend="eager", dynamic=False)(torch.ones(3))
        assert (armed.hits, armed.status) == (0, "armed")
        torch.compile(program, backend="eager", dynamic=False)(torch.ones(4))
        assert (armed.hits, armed.status) == (1, "hit")


@pytest.mark.parametrize("mode", ["hook", "rewrite"])
def test_ctx_graph_break_in_a_probe_splits_the_graph_at_the_probed_line(mode):
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append([node.target.__name__ for node in graph_module.graph.nodes if node.op == "call_function"])
        return graph_module.forward

    with probe(helper, first_line(helper) + 2, do=lambda ctx: ctx.graph_break(), mode=mode) as armed:
        result = torch.compile(program, backend=backend)(torch.ones(3))
    assert torch.equal(result, program(torch.ones(3)))
    assert graphs == [["add"], ["mul"], ["sub"]]
    assert armed.hits == 1


def test_ctx_check_in_a_probe_decides_a_later_branch_on_an_unbacked_symint():
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
        (torch.nn.functional.layer_norm, None, r"layer_norm is never traced: Dynamo puts its calls into the graph"),
        (torch._dynamo.disable(helper), None, r"never traced"),
        (helper, first_line(program) + 1, r"line \d+ is not in helper, which is lines \d+ to \d+ of "),
        (f"{__file__}:4", None, r"no statement begins at .*test_probe.py:4\n  the nearest line with code is \d"),
        ("nowhere.py:3", None, r"file nowhere.py does not exist\n"),
        ("json:nothing", None, r"AttributeError"),
        ("helper", None, r"not of a valid form\n  valid forms: file\.py:12, file\.py::function, module:function"),
        ("no_such_package:f", None, r"ModuleNotFoundError"),
    ],
    ids=lambda value: getattr(value, "__qualname__", "") or type(value).__name__,
)
def test_probe_on_a_target_that_is_never_traced_or_does_not_exist_raises(target, line, message):
    with pytest.raises(ProbeFailed, match=message):
        probe(target, line)


def test_probe_on_code_that_is_already_compiled_warns():
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


def test_rewrite_probe_needs_no_dynamo_reset_and_restores_the_cache_entries():
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


def test_builtin_of_a_rewrite_probe_is_deleted_with_the_code_that_calls_it():
    probe(helper, mode="rewrite").remove()
    before = {name for name in vars(builtins) if name.startswith("__dynx_probe")}
    with probe(helper, mode="rewrite"):
        assert len({name for name in vars(builtins) if name.startswith("__dynx_probe")}) == len(before) + 1
    gc.collect()
    assert {name for name in vars(builtins) if name.startswith("__dynx_probe")} == before


def test_removing_the_last_probe_restores_the_instruction_translator():
    originals = {name: vars(symbolic_convert.InstructionTranslatorBase)[name] for name in ("run", "step", "starts_line")}
    first, second = probe(helper), probe(program)
    assert symbolic_convert.InstructionTranslatorBase.run is not originals["run"]
    first.remove()
    first.remove()
    second.remove()
    assert all(vars(symbolic_convert.InstructionTranslatorBase)[name] is original for name, original in originals.items())


def test_exception_in_a_probe_callback_fails_the_compilation_or_is_recorded():
    with probe(helper, do=lambda ctx: 1 / 0), pytest.raises(dynx.errors.ComptimeFailed, match=r"ZeroDivisionError"):
        torch.compile(program, backend="eager")(torch.ones(3))
    with probe(helper, do=lambda ctx: 1 / 0, on_error="record"), dynx.watch() as w:
        torch.compile(program, backend="eager")(torch.ones(3))
    assert "ZeroDivisionError" in w.troubles[0].why


def test_two_probes_on_one_line_fire_in_the_order_they_were_created():
    order = []
    with probe(helper, do=lambda ctx: order.append(1)), probe(helper, do=lambda ctx: order.append(2)):
        torch.compile(program, backend="eager")(torch.ones(3))
    assert order == [1, 2]


class TestRewrittenCode:
    """Functions, closures and generators with rewritten code still run after the probe was removed."""

    def test_closure_created_under_a_rewrite_probe_still_runs(self):
        def outer(k):
            def inner(x):
                return x + k

            return inner

        armed = probe(outer, first_line(outer) + 2, mode="rewrite", do=lambda ctx: None)
        closure = outer(1)
        armed.remove()
        assert closure(torch.ones(1)).item() == 2

    def test_generator_started_under_a_rewrite_probe_still_runs(self):
        def numbers():
            yield 1
            yield 2

        armed = probe(numbers, first_line(numbers) + 2, mode="rewrite", do=lambda ctx: None)
        generator = numbers()
        next(generator)
        armed.remove()
        assert list(generator) == [2]

    def test_two_rewrite_probes_on_one_function_can_be_removed_in_creation_order(self):
        code = program.__code__
        first = probe(program, mode="rewrite", do=lambda ctx: None)
        second = probe(program, mode="rewrite", do=lambda ctx: None)
        first.remove()
        torch.compile(program, backend="eager")(torch.ones(1))
        assert (first.hits, second.hits) == (0, 1)
        second.remove()
        assert program.__code__ is code
        assert program(torch.ones(1)).item() == 3


def test_probe_may_be_removed_by_its_own_callback():
    """All attempts of a compilation must meet the same probes, or torch's speculation log does not match."""

    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    armed = probe(f, first_line(f) + 1, do=lambda ctx: armed.remove())
    run = torch.compile(f, backend="eager")
    assert run(torch.ones(1)).item() == 4
    assert armed.status == "removed"
    assert symbolic_convert.InstructionTranslatorBase.run.__name__ == "run"


def test_probe_does_not_fire_in_another_function_of_the_same_name_and_line():
    target, neighbour = (lambda x: x + 1), (lambda x: x * 2)
    with probe(target, do=lambda ctx: None) as armed:
        torch.compile(neighbour, backend="eager")(torch.ones(1))
    assert armed.hits == 0


def test_probe_on_a_module_fires_in_a_forward_set_on_the_instance():
    net = torch.nn.Linear(1, 1)
    net.forward = helper
    with probe(net, do=lambda ctx: None) as armed:
        torch.compile(net, backend="eager")(torch.ones(1))
    assert armed.hits == 1


def test_probe_on_a_def_line_fires_at_the_start_of_the_function():
    with probe(helper, first_line(helper), do=lambda ctx: None) as armed:
        torch.compile(program, backend="eager")(torch.ones(1))
    assert armed.hits == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "rewite"}, "mode is 'rewite'\n  valid choices: hook, rewrite"),
        ({"on_error": "ignore"}, "on_error is 'ignore'\n  valid choices: raise, warn, record"),
        ({"do": 3}, "do is 3, which is not callable"),
        ({"when": True}, "when is True, which is not callable"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_probe_with_invalid_options_raises(options, message):
    with pytest.raises(UsageError, match=message):
        probe(helper, **options)


def test_probe_on_a_function_of_a_file_takes_the_target_of_the_command_line():
    with probe(f"{__file__}::helper", do=lambda ctx: None) as armed:
        torch.compile(program, backend="eager")(torch.ones(1))
    assert armed.hits == 1
    with pytest.raises(ProbeFailed, match=r"no function helpr of \S*test_probe\.py is loaded\n  import the module"):
        probe(f"{__file__}::helpr")


def test_probe_with_a_line_in_the_target_and_as_an_argument_raises():
    with pytest.raises(UsageError, match="two lines are given"):
        probe(f"{__file__}:{first_line(helper) + 1}", 3)
