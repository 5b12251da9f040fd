"""AOTAutograd's cache on disk in a second process: a hit for equal hooks, a miss for any change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "cached_program.py"
CHANGES = {
    1: "a global that pack reads",
    2: "a variable that unpack closes over",
    3: "the code of pack",
    4: "an option of a rule",
    5: "the format of a codec",
    6: "what shares a scale",
    7: "the order of rules",
    8: "the schedule",
    9: "the validation",
}


@pytest.fixture(scope="module")
def result_of(tmp_path_factory):
    """Return a function that runs the program in a new process; the first process has filled the cache."""
    folder = tmp_path_factory.mktemp("cache")

    def run(change, seed="0"):
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder), "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, PROGRAM, str(change)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().splitlines()[-1]

    assert run(0) == "miss"
    return run


@pytest.mark.slow
def test_equal_hooks_hit(result_of):
    assert result_of(0, seed="1") == "hit"


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=CHANGES.values())
def test_a_change_misses(result_of, change):
    assert result_of(change) == "miss"
