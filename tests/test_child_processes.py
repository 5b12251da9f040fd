"""The command line of a worker that a launcher starts with `Popen`, changed so that dynx watches the worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import dynx
from dynx._child_processes import ChildSettings, watched_command
from dynx._torch.hooks import installed
from dynx.errors import DynxError


@pytest.fixture
def settings():
    return ChildSettings("last.dynx", ("dynx", "run"), "normal", {"parent": 1, "job": "j"})


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        (["train.py", "-m"], [], ["train.py", "-m"]),
        (["-u", "train.py"], ["-u"], ["train.py"]),
        (["-u", "-m", "train", "-c"], ["-u"], ["train", "-c"]),
        (["-X", "dev", "-Werror", "-W", "ignore", "train.py"], ["-X", "dev", "-Werror", "-W", "ignore"], ["train.py"]),
    ],
    ids=" ".join,
)
def test_watched_worker_command_keeps_the_options_of_python_and_of_the_program(settings, words, options, program):
    command = watched_command([sys.executable, *words], os.environ, settings)
    assert command[: len(options) + 2] == [sys.executable, *options, "-c"]
    assert command[len(options) + 3 :] == program


@pytest.mark.parametrize("command", [["dynx", "run", "train.py"], [sys.executable, "-u", "-m", "dynx", "run"]])
def test_worker_command_that_runs_dynx_is_unchanged(settings, command):
    assert watched_command(command, os.environ, settings) is command


@pytest.mark.parametrize("words", [["-c", "pass"], ["-"], [], ["-m"], ["-u"], ["-um", "train"]], ids=" ".join)
def test_worker_command_that_dynx_cannot_watch_raises(settings, words):
    with pytest.raises(DynxError, match="is not a script or module run by"):
        watched_command([sys.executable, *words], os.environ, settings)


def test_watched_worker_command_keeps_its_numactl_prefix(settings):
    """`torchrun --numa-binding` starts workers with numactl."""
    command = watched_command(["numactl", "--membind=0", sys.executable, "-u", "train.py"], os.environ, settings)
    assert command[:5] == ["numactl", "--membind=0", sys.executable, "-u", "-c"]


def test_subprocesses_that_are_no_workers_are_unchanged_and_popen_is_restored(tmp_path):
    """A subprocess of a rank, such as a compile worker of Inductor, inherits RANK but is not a rank."""
    original, before = subprocess.Popen.__init__, installed()
    with dynx.watch(out=tmp_path / "run.dynx"):
        assert subprocess.Popen.__init__ is not original
        for env in (None, dict(os.environ), {**os.environ, "OTHER": "1"}):
            done = subprocess.run(
                [sys.executable, "-c", "import sys; print(sys.argv)"], env=env, capture_output=True, text=True, check=True
            )
            assert done.stdout == "['-c']\n"
        with pytest.raises(FileNotFoundError):
            subprocess.Popen(["not-a-command"], env={**os.environ, "RANK": "1"})
        with pytest.raises(TypeError):
            subprocess.Popen()
    assert subprocess.Popen.__init__ is original
    assert installed() == before
