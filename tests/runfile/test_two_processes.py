"""Processes that write a run file of the same name at the same time: each keeps its own, the name is that of the newest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dynx
from dynx import Run
from dynx._runfile.writer import RunWriter
from dynx.records import Compile, Location

pytestmark = pytest.mark.skipif(os.name == "nt", reason="an open file cannot be renamed on Windows")


def record(number):
    return Compile(0, f"{number}/0", Location("a.py", number, "f"), "compiled", 1.0)


def test_a_second_writer_takes_the_name_and_the_first_keeps_its_file(tmp_path):
    path = tmp_path / "last.dynx"
    first = RunWriter(path, {"job": "first", "pid": 11})
    first.write(record(1))
    second = RunWriter(path, {"job": "second", "pid": 22})
    assert (first.path.name, second.path.name) == ("last.11.dynx", "last.dynx")
    first.write(record(2))
    second.write(record(3))
    third = RunWriter(path, {"job": "third", "pid": 33})
    assert [writer.path.name for writer in (first, second, third)] == ["last.11.dynx", "last.22.dynx", "last.dynx"]
    for writer in (second, first, third):
        writer.end({"seconds": 1.0})
    lines = {
        writer.path.name: [compiled.location.line for compiled in Run.load(writer.path).compiles] for writer in (first, second)
    }
    assert lines == {"last.11.dynx": [1, 2], "last.22.dynx": [3]}
    assert first.path.name == "last.11.dynx", "also after the end"


def test_writers_of_one_process_do_not_overwrite_each_other(tmp_path):
    path = tmp_path / "last.dynx"
    with dynx.watch(out=path) as outer, dynx.watch(out=path) as inner, dynx.watch(out=path) as innermost:
        names = [watch.path.name for watch in (outer, inner, innermost)]
    assert names == [f"last.{os.getpid()}.dynx", f"last.{os.getpid()}-2.dynx", "last.dynx"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names)
    assert all(Run.load(tmp_path / name).problems == () for name in names)


def test_a_file_that_nobody_writes_is_overwritten(tmp_path):
    for number in range(2):
        writer = RunWriter(tmp_path / "last.dynx", {"job": "j", "pid": number})
        writer.end({})
    assert [file.name for file in tmp_path.iterdir()] == ["last.dynx"]
    assert Run.load(tmp_path / "last.dynx").header["pid"] == 1


def test_a_file_of_a_killed_process_is_overwritten(tmp_path):
    code = """if True:
        import os, pathlib, sys
        from dynx._runfile.writer import RunWriter
        writer = RunWriter(pathlib.Path(sys.argv[1]), {"pid": 1})
        os._exit(1)
    """
    subprocess.run([sys.executable, "-c", code, tmp_path / "last.dynx"], check=False)
    RunWriter(tmp_path / "last.dynx", {"pid": 2}).end({})
    assert [file.name for file in tmp_path.iterdir()] == ["last.dynx"]


def test_a_device_is_written_to_by_everybody():
    writers = [RunWriter(Path(os.devnull), {"pid": number}) for number in range(2)]
    assert [writer.path for writer in writers] == [Path(os.devnull)] * 2
    for writer in writers:
        writer.end({})


@pytest.mark.slow
def test_eight_programs_run_in_one_folder_at_once(tmp_path):
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import os, time, torch
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(int(os.environ["SIZE"])))
        time.sleep(1)
        """)
    )

    def run(number):
        environment = {**os.environ, "SIZE": str(number + 2)}
        command = [sys.executable, "-m", "dynx", "run", "program.py"]
        process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        (saved,) = [line.rpartition("dynx show ")[2] for line in process.stderr.splitlines() if "saved:" in line]
        return saved

    with ThreadPoolExecutor(4) as pool:
        saved = list(pool.map(run, range(8)))
    files = sorted(str(file.relative_to(tmp_path)) for file in (tmp_path / ".dynx").iterdir())
    runs = {name: Run.load(tmp_path / name) for name in files}
    assert all(run.problems == () and len(run.compiles) == 1 for run in runs.values())
    starts = {name: json.loads((tmp_path / name).read_text().splitlines()[0])["started"] for name in files}
    assert starts[".dynx/last.dynx"] == max(starts.values()), "in seconds"
    assert set(saved) <= {*files, ".dynx/last.dynx"}
