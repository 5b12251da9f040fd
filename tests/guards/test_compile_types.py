"""Type checkers keep the signature of a function that `dynx.compile` compiles, as they do for `torch.compile`."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import dynx

def f(x: int, n: str = "1") -> list[int]:
    return [x]

class Net:
    def __init__(self, width: int) -> None: ...
    def __call__(self, x: int) -> str:
        return "x"

@dynx.compile
def plain(x: int, *, scale: float) -> bool:
    return True

@dynx.compile(backend="eager", fullgraph=True, per_backend_limit=3)
def with_options(x: int) -> bool:
    return True

reveal_type(dynx.compile(f))
reveal_type(dynx.compile(f, backend="eager"))
reveal_type(plain)
reveal_type(with_options)
reveal_type(dynx.compile(Net)(3))
reveal_type(dynx.compile(Net(3))(1))
dynx.compile(f)("x")
dynx.compile(f)(3, m=1)
plain(3)
"""


def test_type_checker_keeps_the_signature(tmp_path):
    pytest.importorskip("mypy", reason="mypy is installed for development only")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(file)]
    output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600).stdout
    types = [re.sub(r"builtins\.|\?", "", text) for text in re.findall(r'Revealed type is "(.*)"', output)]
    signature = "def (x: int, n: str =) -> list[int]"
    functions = ["def (x: int, *, scale: float) -> bool", "def (x: int) -> bool"]
    assert types == [signature, signature, *functions, "program.Net", "str"], output
    errors = [line.partition("error: ")[2] for line in output.splitlines() if "error: " in line]
    assert len(errors) == 3, output
    assert 'incompatible type "str"' in errors[0]
    assert 'Unexpected keyword argument "m"' in errors[1]
    assert 'Missing named argument "scale"' in errors[2]
