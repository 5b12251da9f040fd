"""`ComptimeContext`: what a comptime callback can read, print and log while Dynamo traces."""

from __future__ import annotations

import re

import pytest
import torch

import dynx
from dynx.comptime import comptime
from dynx.errors import ComptimeFailed


def value_of(callback, f=None, *args, **options):
    """Compile a function that runs `callback` between two operations, and return the value of the callback."""
    values = []
    torch._dynamo.reset()

    def program(x, n):
        y = x + n
        comptime(lambda ctx: values.append(callback(ctx)))
        return y * 2

    torch.compile(f or program, backend="eager", **options)(*(args or (torch.ones(3), 2)))
    return values[0]


def test_comptime_context_has_the_compile_id_attempt_and_location():
    def read(ctx):
        return ctx.compile_id, ctx.attempt, ctx.depth, ctx.is_resume, ctx.is_generator, ctx.in_subgraph

    assert value_of(read) == ("0/0", 0, 0, False, False, False)
    location = value_of(lambda ctx: ctx.location)
    assert location.file == __file__
    assert location.function == "value_of.<locals>.program"


def test_comptime_context_locals_have_the_variable_names_of_the_user():
    local_variables = value_of(lambda ctx: {name: repr(value) for name, value in ctx.locals().items()})
    expected = {"x": "Tensor(float32, [3])", "n": "2", "y": "Tensor(float32, [3])"}
    assert {name: local_variables[name] for name in "xny"} == expected
    assert set(local_variables) == {"x", "n", "y", "callback", "values"}  # closed-over variables too


def test_comptime_context_local_with_an_unknown_name_raises_and_lists_the_locals():
    def read(ctx):
        try:
            ctx.local("z")
        except KeyError as error:
            return str(error)

    assert "has no local z here; its locals are: " in value_of(read)
    assert "y" in value_of(read)


def test_comptime_variables_have_sizes_symbols_constants_and_sources():
    assert value_of(lambda ctx: ctx.local("y").size(0)) == 3
    assert value_of(lambda ctx: str(ctx.local("x").size(0)), dynamic=True).startswith("s")
    assert value_of(lambda ctx: ctx.local("n").as_python_constant()) == 2
    assert value_of(lambda ctx: ctx.local("x").source) == "L['x']"
    assert value_of(lambda ctx: ctx.local("y").source) is None


def test_comptime_context_lists_inlined_frames_and_reads_locals_of_the_caller():
    state = {}

    def inner(z):
        result = z + 1
        comptime(lambda ctx: state.update(frames=[f.location.function for f in ctx.frames()], z=repr(ctx.local("x", level=1))))
        return result

    def f(x):
        return x * comptime.print_value_stack_and_return(inner(x))

    torch.compile(f, backend="eager")(torch.ones(2))
    assert [name.rpartition(".")[2] for name in state["frames"]] == ["inner", "f"]
    assert state["z"] == "Tensor(float32, [2])"


def test_comptime_context_guards_since_a_snapshot_are_only_the_new_guards():
    snapshots = []

    def f(x, y):
        a = x + 1
        comptime(lambda ctx: snapshots.append(ctx.guards()))
        b = y + 1
        comptime(lambda ctx: snapshots.append(ctx.guards(since=snapshots[0])))
        return a + b

    torch.compile(f, backend="eager")(torch.ones(2), torch.ones(2))
    new = [(guard.kind, guard.source) for guard in snapshots[1]]
    assert ("TENSOR_MATCH", "L['y']") in new
    assert ("TENSOR_MATCH", "L['x']") not in new
    (requested,) = [guard for guard in snapshots[1] if guard.source == "L['y']" and guard.kind == "TENSOR_MATCH"]
    assert requested.location.function.endswith("f")


def test_comptime_context_side_effects_are_the_mutations_of_objects_created_outside():
    class Box:
        pass

    box, history, table = Box(), [], {}
    effects = []

    def f(x):
        box.step = 3
        history.append(x)
        table["k"] = 1
        local_list = [1]
        local_list.append(2)
        comptime(lambda ctx: effects.extend(ctx.side_effects()))
        return x + 1

    torch.compile(f, backend="eager")(torch.ones(2))
    assert [effect.after for effect in effects if effect.kind == "attribute" and effect.source.endswith(".step")] == ["3"]
    assert {effect.after for effect in effects if effect.kind == "items"} == {"[Tensor(float32, [2])]", "{'k': 1}"}
    assert len(effects) == 3


def test_comptime_print_and_print_locals_show_closure_variables(capsys):
    def f(x):
        y = x + 1

        def inner(z):
            comptime.print(y)
            comptime.print_locals()
            return z + y

        return inner(x)

    torch.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Tensor(float32, [2])"
    assert "y = Tensor(float32, [2])" in out
    assert "z = Tensor(float32, [2])" in out


def test_comptime_print_prints_once_although_dynamo_restarts_the_analysis(capsys):
    """torch's comptime.print prints again each time Dynamo restarts the analysis."""
    import torch._dynamo.comptime as torch_comptime

    def f(x, comptime):
        comptime.print(x)
        torch._dynamo.graph_break()
        return x + 1

    torch.compile(f, backend="eager")(torch.ones(2), torch_comptime.comptime)
    assert len(capsys.readouterr().out.splitlines()) == 2
    torch.compile(f, backend="eager")(torch.ones(2), comptime)
    assert capsys.readouterr().out == "Tensor(float32, [2])\n"


def test_comptime_print_in_a_frame_that_dynamo_skips_prints_with_a_notice(capsys):
    def f(x):
        comptime.print(x)
        for _ in range(2):
            torch._dynamo.graph_break()
        return x + 1

    torch.compile(f, backend="eager")(torch.ones(2))
    output = capsys.readouterr()
    assert "Tensor(float32, [2])" in output.out
    assert "was not compiled" in output.err


def test_values_passed_to_ctx_log_are_recorded_in_the_run(tmp_path):
    def f(x):
        comptime(lambda ctx: ctx.log(x=ctx.local("x"), text="hello", n=3))
        return x + 1

    with dynx.watch(out=tmp_path / "run.dynx") as w:
        torch.compile(f, backend="eager")(torch.ones(2))
    (event,) = w.logs
    assert event.values == {"x": "Tensor(float32, [2])", "text": "hello", "n": "3"}
    assert dynx.Run.load(tmp_path / "run.dynx").logs == (event,)


def test_comptime_print_helpers_print_the_backtrace_bytecode_graph_and_guards(capsys):
    def g(x):
        comptime.print_bt()
        comptime.print_disas()
        comptime.print_graph()
        comptime.print_guards()
        return x + 1

    def f(x):
        torch._dynamo.graph_break()
        return g(x) * 2

    torch.compile(f, backend="eager")(torch.ones(2))
    out = capsys.readouterr().out
    assert "torch_dynamo_resume_in" not in out.split("LOAD_")[0]
    assert "-->" in out
    assert "def forward(self" in out
    assert re.search(r"CLOSURE_MATCH \S+  # \S+test_context.py:\d+ in g", out)


def test_comptime_force_static_makes_a_symbolic_size_constant():
    def f(x):
        n = x.size(0)
        comptime.force_static(n)
        comptime.assert_static(n)
        return x + n

    run = torch.compile(f, backend="eager", dynamic=True)
    with dynx.watch() as w:
        run(torch.ones(3))
        run(torch.ones(4))
    assert len(w.recompiles) == 1


@pytest.mark.parametrize("kind", [AssertionError, ComptimeFailed])
def test_assert_static_raises_what_that_of_torch_raises(kind):
    def f(x):
        comptime.assert_static(x.size(0))
        return x + 1

    with pytest.raises(kind, match="expected a static value but got the dynamic number"):
        torch.compile(f, backend="eager", dynamic=True)(torch.ones(3))


def test_comptime_print_in_a_failed_compilation_prints_once(capsys):
    def f(x):
        comptime(lambda ctx: (ctx.print("output"), ctx.graph_break()))
        return x + 1

    try:
        torch.compile(f, backend="eager", fullgraph=True)(torch.ones(1))
    except torch._dynamo.exc.Unsupported:
        pass
    assert capsys.readouterr().out.count("output") == 1


def test_comptime_print_in_a_resume_function_without_operations_prints_no_failure_notice(capsys):
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        comptime.print(y)
        return y

    torch.compile(f, backend="eager")(torch.ones(1))
    output = capsys.readouterr()
    assert output.out == "Tensor(float32, [1])\ntensor([2.])\n", "printed when it is traced, and again when it runs eagerly"
    assert "was not compiled" not in output.err
