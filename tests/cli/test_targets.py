"""`file.py::function` and `module:function` name a function for every command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dynx.cli.program import target
from dynx.errors import UsageError

STEPS = """
import torch

@torch.compile(backend="aot_eager")
def compiled(x):
    return (x * x).sum()

def double(x):
    return x * 2

def inputs():
    return [torch.ones(3)]

if __name__ == "__main__":
    compiled(torch.ones(3, requires_grad=True)).backward()
    print("ran")
"""


@pytest.fixture
def dynx(tmp_path):
    """Return a function that runs a command in a folder with a file and a package."""
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "package" / "inner").mkdir(parents=True)
    for name in ("package/__init__.py", "package/inner/__init__.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "package" / "inner" / "steps.py").write_text(
        STEPS.replace("import torch", "import torch\nfrom . import __path__")
    )
    (tmp_path / "my steps").mkdir()
    (tmp_path / "my steps" / "random.py").write_text(STEPS)  # the name of a module of the standard library

    def run(*words):
        command = [sys.executable, "-W", "ignore", "-m", "dynx", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)

    return run


@pytest.mark.parametrize(
    ("text", "program", "is_module"),
    [
        ("train.py::step", "train.py", False),
        ("my folder/train.py::Model.forward", "my folder/train.py", False),
        ("-::step", "-", False),
        ("C:\\code\\train.py::step", "C:\\code\\train.py", False),
        ("train:step", "train", True),
        ("package.train:Model.forward", "package.train", True),
    ],
)
def test_both_forms_of_a_target(text, program, is_module):
    found = target.parse(text, "dynx check")
    assert (found.program, found.function, found.is_module) == (program, text.rpartition(":")[2], is_module)


@pytest.mark.parametrize("command", ["check", "guards", "memory"])
@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("train.py", "train.py::function"),
        ("train.py:step", "train.py::step"),
        ("train.py::", "train.py::function"),
        ("package.train", "package.train:function"),
        ("package.train:", "package.train:function"),
        ("package.train::step", "package.train:step"),
        ("::step", "train.py::step"),
        ("a folder/train:step", "a folder/train::step"),
    ],
)
def test_an_error_about_a_target_names_both_forms(command, text, example):
    with pytest.raises(UsageError) as error:
        target.parse(text, f"dynx {command}")
    assert "file.py::function or module:function" in str(error.value)
    assert str(error.value).endswith(f"for example: dynx {command} {example}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "steps.py::double",
        "steps:double",
        "package/inner/steps.py::double",
        "package.inner.steps:double",
        "my steps/random.py::double",
    ],
)
def test_dynx_check_takes_both_forms(dynx, text):
    done = dynx("check", text)
    assert done.returncode == 0, done.stderr
    assert "double does the same compiled" in done.stdout
    assert not done.stdout.startswith("ran\n"), "the file is imported"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["guards", "memory"])
@pytest.mark.parametrize("text", ["steps.py::compiled", "steps:compiled", "package.inner.steps:compiled"])
def test_dynx_guards_and_memory_take_both_forms(dynx, command, text):
    done = dynx(command, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ran\n")
    assert ("1 version" if command == "guards" else "saved tensors\n") in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["inputs", "steps:inputs", "package/inner/steps.py::inputs"])
def test_a_factory_of_inputs_may_stand_in_another_file(dynx, factory):
    assert dynx("check", "--inputs", factory, "steps:double").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "other.py::f"], "there is no Python file other.py"),
        (["check", "steps.py::absent"], "steps.py has no absent"),
        (["check", "other:f"], "there is no module other in the current folder or among the installed ones"),
        (["guards", "other.py::f"], "the file other.py does not exist"),
        (["guards", "other:f"], "no module named other"),
        (["guards"], "no program to run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_targets_that_do_not_exist(dynx, words, message):
    done = dynx(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
