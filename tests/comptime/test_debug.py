"""`dynx.comptime.debug` in a terminal, IPython, a script and a callback; the debugged program is not affected."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest
import torch

from dynx.comptime import comptime, debug, probe
from dynx.errors import UsageError


def inner(x):
    y = x.sin()
    return y + 1


def outer(x):
    z = inner(x)
    return z * 2


def breaking(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


PROGRAM = """
    import torch
    from dynx.comptime import debug

    def f(x):
        y = x + 1
        return y * 2

    print("result", debug(f)(torch.ones(2)).tolist())
"""


def run(tmp_path, command, lines):
    """Run PROGRAM in a process of its own, with `lines` on standard input."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    text = "\n".join(lines) + "\n"
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=tmp_path, timeout=600)


@pytest.mark.slow
def test_debugger_reads_commands_from_standard_input(tmp_path):
    done = run(tmp_path, [sys.executable, "program.py"], ["n", "p y", "", "c", "back 2", "c", "q"])
    assert "program.py:6  f" in done.stdout
    assert "Tensor(float32, [2])" in done.stdout
    assert "the trace is over" in done.stdout
    assert "result [4.0, 4.0]" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_end_of_standard_input_ends_the_debugger_and_the_program_continues(tmp_path):
    done = run(tmp_path, [sys.executable, "program.py"], ["n"])
    assert "result [4.0, 4.0]" in done.stdout
    assert done.returncode == 0


@pytest.mark.slow
def test_debugger_reads_commands_in_ipython_and_the_shell_continues(tmp_path):
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor", "-i", "program.py"]
    done = run(tmp_path, command, ["n", "p y.shape", "q", "1 + 1", "exit"])
    assert "(2,)" in done.stdout
    assert "result [4.0, 4.0]" in done.stdout
    assert "Out[1]: 2" in done.stdout, "the shell continues"


def test_debugger_script_is_a_string_or_an_iterable_of_commands(capsys):
    torch._dynamo.reset()
    assert debug(outer, script="n; p z")(torch.zeros(2)).tolist() == [2.0, 2.0]
    first = capsys.readouterr().out
    torch._dynamo.reset()
    debug(outer, script=["n", "p z"])(torch.zeros(2))
    assert capsys.readouterr().out == first
    assert "(dynx) p z\nTensor(float32, [2])\n" in first


def test_debugged_compiled_function_keeps_its_backend(capsys):
    torch._dynamo.reset()
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    debug(torch.compile(outer, backend=backend), script="c")(torch.zeros(2))
    assert len(graphs) == 1


def test_debugger_reports_a_cache_hit_because_nothing_is_traced(capsys):
    torch._dynamo.reset()
    compiled = torch.compile(outer, backend="eager")
    compiled(torch.zeros(2))
    assert debug(compiled, script="n")(torch.zeros(2)).tolist() == [2.0, 2.0]
    assert "nothing was traced: a cache entry matches these arguments" in capsys.readouterr().out


def test_debugger_steps_through_a_recompilation(capsys):
    torch._dynamo.reset()
    compiled = torch.compile(outer, backend="eager", dynamic=False)
    compiled(torch.zeros(2))
    debug(compiled, script="p x.shape")(torch.zeros(3))
    out = capsys.readouterr().out
    assert "[0/1]" in out
    assert "(3,)" in out


def test_debugger_script_runs_in_every_call_that_compiles(capsys):
    torch._dynamo.reset()
    debugged = debug(torch.compile(outer, backend="eager", dynamic=False), script="p x.shape")
    debugged(torch.zeros(2))
    debugged(torch.zeros(3))
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("(")] == [
        *("(dynx) p x.shape", "(2,)"),
        *("(dynx) p x.shape", "(3,)"),
    ]


def test_compile_error_under_the_debugger_reaches_the_caller(capsys):
    torch._dynamo.reset()
    compiled = torch.compile(breaking, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        debug(compiled, script="c; locals; c")(torch.ones(2))
    assert "graph break" in capsys.readouterr().out


def test_ctx_debug_in_a_probe_opens_the_debugger_at_the_probed_line(capsys):
    torch._dynamo.reset()
    line = inner.__code__.co_firstlineno + 2
    with probe(inner, line, do=lambda ctx: ctx.debug(script="w; p y; u; locals; d; n; q")):
        result = torch.compile(outer, backend="eager")(torch.zeros(2))
    assert result.tolist() == [2.0, 2.0]
    out = capsys.readouterr().out
    assert f"-> tests/comptime/test_debug.py:{line}  inner  return y + 1" in out
    assert "(dynx) p y\nTensor(float32, [2])" in out
    assert "(dynx) locals\nx  Tensor(float32, [2])" in out
    assert "return z * 2" in out, "n continues in the caller"


def test_ctx_debug_opens_the_debugger_in_every_tracing_attempt(capsys):
    def f(x):
        y = x + 1
        comptime(lambda ctx: ctx.debug(script="p y"))
        print(end="")
        return y * 2

    torch._dynamo.reset()
    assert torch.compile(f, backend="eager")(torch.ones(2)).tolist() == [4.0, 4.0]
    assert capsys.readouterr().out.count("(dynx) p y") == 2, "a debugger acts at once, in each attempt"


def test_ctx_debug_stops_the_debugger_session_that_is_already_open(capsys):
    def f(x):
        y = x + 1
        comptime(lambda ctx: ctx.debug())
        return y * 2

    torch._dynamo.reset()
    debug(f, script="c; p y; back 1; forward 1; c")(torch.ones(2))
    out = capsys.readouterr().out
    assert "(dynx) p y\nTensor(float32, [2])" in out
    assert "the trace is over" not in out


def test_debugger_with_internals_steps_into_torch_code(capsys):
    linear = torch.nn.Linear(2, 2)

    def f(x):
        return linear(x) + 1

    torch._dynamo.reset()
    debug(f, script="s; s; q", internals=True)(torch.ones(2))
    assert "linear.py" in capsys.readouterr().out
    torch._dynamo.reset()
    debug(f, script="s; s; q")(torch.ones(2))
    assert "linear.py" not in capsys.readouterr().out


def test_debugger_ignores_compilations_on_other_threads(capsys):
    @torch.compiler.disable
    def compile_in_thread():
        thread = threading.Thread(target=lambda: torch.compile(inner, backend="eager")(torch.ones(2)))
        thread.start()
        thread.join()

    def f(x):
        y = x + 1
        compile_in_thread()
        return y * 2

    torch._dynamo.reset()
    debug(f, script="s; s; s; s; s")(torch.ones(2))
    out = capsys.readouterr().out
    assert "return y * 2" in out
    assert "x.sin()" not in out


def test_debugger_works_on_code_without_source_text(capsys):
    names = {"torch": torch}
    exec("def f(x):\n    y = x + 1\n    return y * 2\n", names)
    torch._dynamo.reset()
    debug(names["f"], script="b 3; c; p y; q")(torch.ones(2))
    out = capsys.readouterr().out
    assert "breakpoint 1 at <string>:3" in out
    assert "<string>:3  f  [0/0]  2 nodes" in out
    assert "-> (no source) LOAD_FAST y" in out
    assert "(dynx) p y\nTensor(float32, [2])" in out


def test_debugged_function_keeps_its_name_and_debugged_module_is_callable():
    assert debug(outer).__name__ == "outer"
    assert debug(torch.nn.Linear(1, 1))(torch.ones(1, 1)).shape == (1, 1)


def test_exception_in_the_debugger_recorder_warns_and_the_program_continues(monkeypatch):
    from dynx._torch.trace_log import value_text
    from dynx.errors import DynxWarning

    def fail(value, depth=2):
        raise RuntimeError("no")

    monkeypatch.setattr(value_text, "show_value", fail)
    torch._dynamo.reset()
    with pytest.warns(DynxWarning, match="debugger: RuntimeError: no; the program is not affected"):
        assert debug(outer, script="n")(torch.zeros(2)).tolist() == [2.0, 2.0]


def test_debugger_p_command_and_breakpoint_conditions_work_on_copies(capsys):
    def f(x, values, table):
        if len(values) > 1 or table:
            x = x * 1000
        return x + 1

    values, table = [1], {}
    torch._dynamo.reset()
    script = "p values.append(3); p table.update(a=1); b 1 if values.append(4); p values; c"
    assert debug(f, script=script)(torch.ones(1), values, table).tolist() == [2.0]
    assert (values, table) == ([1], {})
    assert "(dynx) p values\n[1]" in capsys.readouterr().out


def test_exception_in_a_debugger_stop_condition_warns_and_the_program_continues(monkeypatch):
    from dynx.comptime import _stops
    from dynx.errors import DynxWarning

    def fail(code):
        raise RuntimeError("no")

    monkeypatch.setattr(_stops, "_beginnings", fail)
    torch._dynamo.reset()
    with pytest.warns(DynxWarning, match="debugger: RuntimeError: no; the program is not affected"):
        assert debug(outer, script="n")(torch.zeros(2)).tolist() == [2.0, 2.0]


def test_debug_with_invalid_arguments_raises():
    with pytest.raises(UsageError, match="debug\\(\\) got 3, which is not callable"):
        debug(3)
    with pytest.raises(UsageError, match="script is 3"):
        debug(outer, script=3)
    with pytest.raises(UsageError, match=r"script is \[3\]"):
        debug(outer, script=[3])
