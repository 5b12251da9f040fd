"""`breakpoint()` in a callback is a session in Python's own debugger, with the context at hand."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def converse(tmp_path, source, *lines):
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    talk = "\n".join(lines) + "\n"
    return subprocess.run([sys.executable, str(file)], input=talk, capture_output=True, text=True, cwd=tmp_path)


PROGRAM = """
    import torch
    from dynx.comptime import comptime

    def f(x):
        y = x + 1
        comptime.breakpoint()
        return y * 2

    print("result", torch.compile(f, backend="eager")(torch.ones(2)).tolist())
"""


def test_the_helper_stops_with_the_context(tmp_path):
    done = converse(tmp_path, PROGRAM, "p ctx.local('y')", "ctx.print_bt()", "c")
    assert "Tensor(float32, [2])" in done.stdout
    assert "comptime.breakpoint()" in done.stdout, "shown at once, not when the attempt counts"
    assert "result [4.0, 4.0]" in done.stdout


def test_a_breakpoint_in_a_callback_that_closes_over_values(tmp_path):
    callback = "@comptime\n        def _(ctx):\n            breakpoint()\n            ctx.log(y=y)"
    source = PROGRAM.replace("comptime.breakpoint()", callback)
    done = converse(tmp_path, source, "p ctx.local('x')", "p y", "c")
    assert done.stdout.count("Tensor(float32, [2])") == 2
    assert "result [4.0, 4.0]" in done.stdout


def test_quitting_the_debugger_is_told(tmp_path):
    done = converse(tmp_path, PROGRAM, "q")
    assert done.returncode == 1
    assert "the debugger in a comptime callback was quit\n  at program.py:7 in f" in done.stderr
    assert "InternalTorchDynamoError" not in done.stderr
