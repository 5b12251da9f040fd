"""A probe on a line that torch never traces says so when it is set; `except`, `case` and lambdas are traced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from programs import never_traced

from dynx.comptime import probe
from dynx.errors import ProbeFailed

FILE = Path(never_traced.__file__)
LINES = [(number, line.rpartition("  # ")[2]) for number, line in enumerate(FILE.read_text().splitlines(), 1) if "  # " in line]
WHY = {
    "import": "it runs when the module is imported, which torch does not trace\n  the nearest line that torch may trace is ",
    "no code": "Python compiles no code for it\n  the nearest line that torch may trace is ",
    "class Net": "it runs when the class Net is created, which torch does not trace\n  the nearest",
    "class Plain": "it runs when the class Plain is created, which torch does not trace\n  the nearest",
    "2 lambdas": "which torch does not trace\n  pass one of its 2 lambdas instead of the line",
    "disable was applied to off": "torch.compiler.disable was applied to off\n  set the probe on the line that calls it",
    "disable was applied to Plain.off": "torch.compiler.disable was applied to Plain.off\n  set the probe",
}


def run_all():
    x = torch.ones(3)
    functions = never_traced.lam, *never_traced.table.values(), *never_traced.two, never_traced.nested, never_traced.Net()
    for function in functions:
        torch.compile(function, backend="eager")(x)


def test_the_program_has_lines_of_every_kind():
    assert set(WHY) == {mark for _, mark in LINES if not mark.isdigit()}


@pytest.mark.parametrize("mode", ["hook", "rewrite"])
@pytest.mark.parametrize(("line", "mark"), [(line, mark) for line, mark in LINES if not mark.isdigit()])
def test_a_probe_that_can_never_fire_raises_when_it_is_set(line, mark, mode):
    with pytest.raises(ProbeFailed, match=re.escape(WHY[mark])) as raised:
        probe(f"{FILE}:{line}", mode=mode)
    assert f"never_traced.py:{line} can never fire" in str(raised.value)


@pytest.mark.parametrize("mode", ["hook", "rewrite"])
@pytest.mark.parametrize(("line", "count"), [(line, int(mark)) for line, mark in LINES if mark.isdigit()])
def test_a_probe_on_a_traced_line_fires_whenever_the_line_runs(line, count, mode):
    with probe(f"{FILE}:{line}", do=lambda ctx: None, mode=mode) as p:
        run_all()
    assert p.hits == count


def test_a_line_of_a_module_that_is_not_imported_yet(tmp_path):
    file = tmp_path / "later.py"
    file.write_text("lam = lambda x: x + 1\n\n\ndef f(x):\n    return x\n")
    with pytest.raises(ProbeFailed, match="import the module first: then the probe fires in the lambda"):
        probe(f"{file}:1")
    with probe(f"{file}:5", do=lambda ctx: None) as p:
        assert p.status == "armed"


def test_a_file_without_functions(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("x = 1\n")
    with pytest.raises(ProbeFailed, match="set the probe on the line that calls it"):
        probe(f"{file}:1")


def test_a_file_that_python_cannot_compile_is_not_refused(tmp_path):
    """Cells of notebooks have magics."""
    file = tmp_path / "cell.py"
    file.write_text("def f(x):\n    return x\n\nawait f(1)\n")
    with probe(f"{file}:2", do=lambda ctx: None) as p:
        assert p.status == "armed"
