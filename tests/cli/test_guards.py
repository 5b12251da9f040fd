"""`dynx guards script.py::function` runs a script and lists the cache entries of a function."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import sys, torch

def scaled(x, n):
    return x * n

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

step = torch.compile(scaled, backend="eager", dynamic=False)
for n in map(int, sys.argv[1:]):
    step(torch.ones(3), n)
model = torch.compile(Model(), backend="eager")
model(torch.ones(3))
print("done")
"""


@pytest.mark.slow
def test_dynx_guards_lists_the_cache_entries_after_the_program_ends(shell, program):
    program(PROGRAM)
    done = shell("-m", "dynx", "guards", "program.py::scaled", "2", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done\nscaled  program.py:4  2 versions")
    assert "n      3" in done.stdout
    data = json.loads(shell("-m", "dynx", "guards", "--json", "program.py::step", "2").stdout)
    assert [entry["id"] for entry in data["entries"]] == ["0/0"]
    assert "Model.forward  program.py:8  1 version" in shell("-m", "dynx", "guards", "program.py::model").stdout


@pytest.mark.slow
def test_dynx_guards_with_an_unknown_target_is_an_error_that_suggests_a_fix(shell, program):
    program(PROGRAM)
    for target, words in (
        ("program.py", "the target program.py is not of the form file.py::function or module:function"),
        ("other.py::f", "the file other.py does not exist"),
        ("program.py:step", "for example: dynx guards program.py::step"),
        ("program.py::", "for example: dynx guards program.py::function"),
        ("program.py::f", "program.py has compiled no function f\n  compiled functions: Model.forward"),
        ("program.py::Model.backward", "has compiled no function Model.backward\n  compiled functions:"),
    ):
        done = shell("-m", "dynx", "guards", target)
        assert done.returncode == 2
        assert words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


INSIDE = """
import sys, torch

def main():
    @torch.compile(backend="eager")
    def step(x):
        return x + 1

    step(torch.ones(3))
    {end}

main()
"""


def test_cache_entries_are_listed_by_the_guards_command_even_if_the_program_raises(shell, program):
    program(INSIDE.format(end="raise ValueError('mine')"))
    done = shell("-m", "dynx", "guards", "program.py::main.<locals>.step")
    assert done.returncode == 1
    assert done.stdout.startswith("main.<locals>.step  program.py:6  1 version")
    assert done.stderr.splitlines()[-1] == "ValueError: mine"
    assert "dynx" not in done.stderr


@pytest.mark.slow
def test_dynx_guards_exits_with_the_exit_code_of_the_program(shell, program):
    program(INSIDE.format(end="sys.exit(7)"))
    done = shell("-m", "dynx", "guards", "program.py::main.<locals>.step")
    assert (done.returncode, done.stdout.split()[0]) == (7, "main.<locals>.step")
