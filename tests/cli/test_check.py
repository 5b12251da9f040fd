"""`dynx check module:function`."""

import json
import subprocess
import sys

import pytest

MODULE = """
import torch

class Items(set):
    pass

class Slot:
    __slots__ = ("value",)

def double(x):
    return x * 2

def forget(slot, x):
    try:
        del slot.value
    except AttributeError:
        return "error", x * 2
    return "deleted", x * 2

class Model(torch.nn.Linear):
    pass

model = Model(3, 3)

def inputs():
    return [torch.ones(3), torch.ones(4)]

def slots():
    return [(Slot(), torch.ones(3))]

def sized():
    return [torch.ones(2, 3)]
"""


@pytest.fixture
def dynx(tmp_path):
    (tmp_path / "steps.py").write_text(MODULE)

    def run(*arguments):
        command = [sys.executable, "-W", "ignore", "-m", "dynx", "check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_function_that_does_the_same(dynx):
    code, out, _ = dynx("steps:double")
    assert (code, "double does the same compiled" in out) == (0, True)
    assert "4 calls" in out


@pytest.mark.slow
def test_a_function_that_does_not(dynx):
    code, out, _ = dynx("--inputs", "slots", "--json", "steps:forget")
    assert code == 1
    assert json.loads(out)["diffs"][0]["path"] == "result[0]"


@pytest.mark.slow
def test_a_module(dynx):
    code, out, _ = dynx("--inputs", "sized", "--calls", "1", "--backend", "aot_eager", "steps:model")
    assert (code, "aot_eager" in out) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["steps"], "not of the form file.py::function or module:function"),
        (["nothing_here:f"], "there is no module nothing_here"),
        (["steps:absent"], "steps has no absent"),
        (["--inputs", "absent", "steps:double"], "steps has no absent"),
        (["--calls", "0", "steps:double"], "calls=0"),
    ],
)
def test_usage_errors(dynx, arguments, message):
    code, out, err = dynx(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_in_forked_processes(dynx):
    code, out, _ = dynx("--isolate", "fork", "--inputs", "slots", "steps:forget")
    assert (code, "error" in out, "deleted" in out) == (1, True, True)
