"""A small run of `make fuzz` with a fixed seed, in a subprocess: wrongly injected bytecode can crash the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz" / "rewrite.py"


@pytest.mark.slow
def test_standard_library_returns_the_same_results_with_a_call_injected_at_random_lines():
    done = subprocess.run([sys.executable, str(FUZZ), "--pairs", "80"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "80 lines, same results" in done.stdout
