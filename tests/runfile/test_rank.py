"""The name of the run file of a rank, and the existing files that it does not overwrite."""

from __future__ import annotations

import json
import os

import pytest

import dynx
from dynx import Run
from dynx._runfile.rank import Rank, claim, current_rank
from dynx._runfile.writer import RunWriter
from dynx.records import Compile, Location

COMPILE = Compile(0, "0/0", Location("train.py", 41, "main"), "compiled", 1.5)
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID")


@pytest.fixture(autouse=True)
def no_rank(monkeypatch):
    """Delete the variables that a launcher sets: the tests themselves may run in a rank."""
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def header(**more):
    return {"job": "this", "pid": os.getpid(), **more}


def run_file(path, written):
    path.write_text(json.dumps({"type": "header", "dynx_run": 1, **written}) + "\n")
    return path


@pytest.mark.parametrize(
    ("existing", "name"),
    [
        (None, "last.rank1.dynx"),
        ({"job": "earlier", "pid": 1}, "last.rank1.dynx"),
        ({"job": "this", "pid": 1}, "last.rank1-2.dynx"),
        ({"job": "this", "pid": os.getpid()}, "last.rank1.dynx"),
        ({}, "last.rank1.dynx"),
    ],
    ids=["no file", "earlier launch", "same launch", "same process", "file without a launch"],
)
def test_rank_does_not_overwrite_a_run_file_of_the_same_launch(tmp_path, existing, name):
    if existing is not None:
        run_file(tmp_path / "last.rank1.dynx", existing)
    own = run_file(tmp_path / "last.77.dynx", header())
    assert claim(own, tmp_path / "last.dynx", Rank(1, 2), header()) == tmp_path / name
    assert not own.exists()


def test_rank_does_not_overwrite_a_run_file_that_another_job_is_writing(tmp_path):
    """Two jobs may run in one folder at the same time."""
    first = RunWriter(tmp_path / "last.dynx", header(job="first", rank=1, world_size=2))
    second = RunWriter(tmp_path / "last.dynx", header(job="second", rank=1, world_size=2))
    assert [first.path.name, second.path.name] == ["last.rank1.dynx", "last.rank1-2.dynx"]
    first.end({})
    second.end({})
    third = RunWriter(tmp_path / "last.dynx", header(job="third", rank=1, world_size=2))
    assert third.path.name == "last.rank1.dynx"
    third.end({})


def test_run_file_of_a_child_process_is_renamed_when_its_rank_becomes_known(tmp_path, monkeypatch):
    """`mp.spawn` does not set RANK: the child sets it or initializes its process group."""
    writer = RunWriter(tmp_path / "last.dynx", header(parent=1))
    assert writer.path.name == f"last.{os.getpid()}.dynx"
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    writer.write(COMPILE)
    writer.end({"seconds": 1.0})
    assert [path.name for path in tmp_path.iterdir()] == ["last.rank3.dynx"]
    run = Run.load(tmp_path / "last.rank3.dynx")
    assert (run.header["rank"], run.header["world_size"], len(run.compiles)) == (3, 8, 1)


def test_run_file_keeps_its_name_if_world_size_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with dynx.watch(out=tmp_path / "run.dynx") as watch:
        assert watch.path == tmp_path / "run.dynx"
    assert "rank" not in watch.run.header


def test_watch_in_a_rank_adds_the_rank_to_the_run_file_name(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    for _ in range(2):  # the same process overwrites its file, as a process without a rank does
        with dynx.watch(out=tmp_path / "run.dynx") as watch:
            pass
        assert watch.path == tmp_path / "run.rank3.dynx"
        assert watch.run.header["rank"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["run.rank3.dynx"]


@pytest.mark.parametrize(("rank", "world_size"), [("", "2"), ("x", "2"), ("-1", "2"), ("1", "")])
def test_invalid_rank_or_world_size_in_the_environment_is_ignored(monkeypatch, rank, world_size):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    assert current_rank() is None
