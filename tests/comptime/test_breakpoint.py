"""`breakpoint()` in a callback opens Python's debugger, where the context can be used."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def run_with_input(tmp_path, source, *lines):
    """Run a program in a process of its own, with `lines` on standard input."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    text = "\n".join(lines) + "\n"
    return subprocess.run([sys.executable, str(file)], input=text, capture_output=True, text=True, cwd=tmp_path)


PROGRAM = """
    import torch
    from dynx.comptime import comptime

    def f(x):
        y = x + 1
        comptime.breakpoint()
        return y * 2

    print("result", torch.compile(f, backend="eager")(torch.ones(2)).tolist())
"""


def test_comptime_breakpoint_opens_pdb_with_ctx_as_a_local_variable(tmp_path):
    done = run_with_input(tmp_path, PROGRAM, "p ctx.local('y')", "ctx.print_bt()", "c")
    assert "Tensor(float32, [2])" in done.stdout
    assert "comptime.breakpoint()" in done.stdout, "in a debugger output is shown at once, not when the attempt commits"
    assert "result [4.0, 4.0]" in done.stdout


@pytest.mark.slow
def test_breakpoint_in_a_comptime_callback_opens_pdb_with_the_closure_variables(tmp_path):
    callback = "@comptime\n        def _(ctx):\n            breakpoint()\n            ctx.log(y=y)"
    source = PROGRAM.replace("comptime.breakpoint()", callback)
    done = run_with_input(tmp_path, source, "p ctx.local('x')", "p y", "c")
    assert done.stdout.count("Tensor(float32, [2])") == 2
    assert "result [4.0, 4.0]" in done.stdout


@pytest.mark.slow
def test_quitting_pdb_in_a_comptime_callback_fails_the_compilation(tmp_path):
    done = run_with_input(tmp_path, PROGRAM, "q")
    assert done.returncode == 1
    assert "the debugger in a comptime callback was quit\n  at program.py:7 in f" in done.stderr
    assert "InternalTorchDynamoError" not in done.stderr
