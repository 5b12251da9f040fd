"""Run files: complete, damaged or malformed, and read without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import records

from dynx import Run
from dynx._runfile.writer import RunWriter
from dynx.errors import BadRunFile, DynxWarning
from dynx.records import Compile, Location

HERE = Location("train.py", 41, "main")
COMPILE = Compile(0, "0/0", HERE, "compiled", 1.5)


@pytest.fixture
def saved(tmp_path):
    """Write a complete run file with three compiles."""
    path = tmp_path / "run.dynx"
    Run((COMPILE, COMPILE, COMPILE), {"torch": "2.13.0"}, {"seconds": 3.0, "outcome": "finished"}).save(path)
    return path


@settings(max_examples=50)
@given(st.lists(records, max_size=5).map(tuple))
def test_run_is_equal_after_saving_and_loading(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("run") / "run.dynx"
    run = Run(events, {"torch": "2.13.0"}, {"seconds": 3.0})
    run.save(path)
    assert Run.load(path) == run


def test_complete_lines_of_a_truncated_run_file_are_read(saved):
    """A process that is killed while it writes leaves such a file."""
    whole = saved.read_bytes()
    saved.write_bytes(whole[: whole.index(b'"end"') - 40])
    with pytest.warns(DynxWarning, match=r"line 4: not JSON .*the file ends here, the process may have been killed"):
        run = Run.load(saved)
    assert len(run.compiles) == 2
    assert not run.is_complete
    assert run.problems


def test_damaged_line_of_a_run_file_warns_with_its_number_and_the_other_lines_are_read(saved):
    lines = saved.read_text().splitlines()
    lines[2] = lines[2].replace('"compiled"', "3")
    saved.write_text("\n".join(lines) + "\n")
    with pytest.warns(DynxWarning, match=r"line 3: Compile.outcome is a int, expected str"):
        run = Run.load(saved)
    assert len(run.compiles) == 2
    assert run.is_complete


def test_unknown_lines_of_a_run_file_are_kept_when_it_is_saved_again(saved, tmp_path):
    with saved.open("a") as file:
        file.write('{"type": "hologram", "size": 3}\n')
    run = Run.load(saved)
    run.save(tmp_path / "again.dynx")
    assert '{"type": "hologram", "size": 3}' in (tmp_path / "again.dynx").read_text()


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"type": "compile", "location": ' * 5000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"type": "compile", "generation": ' + b"9" * 5000 + b"}",
        b"\xff\xfe\x00",
        b"null",
        b'"text"',
        b'{"type": ["compile"]}',
        b'{"type": "compile", "id": {"\\u0000": []}}',
        b"x" * (9 * 2**20),
        b'{"type": "end", "seconds": "soon"}',
        b'{"type": "end", "seconds": 1' + b"0" * 400 + b"}",
        b'{"type": "compile", "generation": 0, "id": "0/0", "location": {"file": "", "line": 1, "function": ""},'
        b' "outcome": "compiled", "seconds": 1' + b"0" * 400 + b"}",
        b'{"type": "cache", "cache": "new", "result": "bypass", "generation": 0, "id": "0/0", "location":'
        b' {"file": "", "line": 1, "function": ""}}',
    ],
    ids=[
        "nested brackets",
        "unclosed objects",
        "nested objects",
        "huge int",
        "not UTF-8",
        "null",
        "string",
        "list as type",
        "object as id",
        "very long line",
        "text as seconds of end",
        "huge seconds of end",
        "huge seconds of compile",
        "unknown cache",
    ],
)
def test_malformed_line_of_a_run_file_is_harmless(saved, line):
    """It executes nothing, raises nothing, and the other lines are read."""
    saved.write_bytes(saved.read_bytes() + line + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)
        run = Run.load(saved)
    assert len(run.compiles) == 3
    assert isinstance(run.seconds, float)
    assert run.findings == ()
    assert "compiles" in repr(run)


def test_control_characters_in_a_run_file_header_become_visible_escapes(saved):
    lines = saved.read_text().splitlines()
    lines[0] = json.dumps({"type": "header", "dynx_run": 1, "command": ["dynx", "\x1b]0;owned\x07"], "torch": "\x1b[31m"})
    saved.write_text("\n".join(lines[:-1]) + "\n")  # as from before there were checksums
    run = Run.load(saved)
    assert run.header["command"] == ["dynx", "\\x1b]0;owned\\x07"]
    assert run.header["torch"] == "\\x1b[31m"


def change_header(lines):
    lines[0] = lines[0].replace("2.13.0", "2.11.0")


def change_end(lines):
    lines[-2] = lines[-2].replace("3.0", "4.0")


def drop_line(lines):
    del lines[2]


def repeat_line(lines):
    lines.insert(2, lines[2])


def drop_checksum(lines):
    del lines[-1]


def append_record(lines):
    lines.append(lines[2])


def newer(lines):
    lines[0] = lines[0].replace('"dynx_run": 1', '"dynx_run": 2')


@pytest.mark.parametrize(
    "change", [change_header, change_end, drop_line, repeat_line, drop_checksum, append_record, newer], ids=lambda f: f.__name__
)
def test_changes_of_a_run_file_are_noticed(saved, change):
    assert not Run.load(saved).problems
    lines = saved.read_text().splitlines()
    change(lines)
    saved.write_text("\n".join(lines) + "\n")
    with pytest.warns(DynxWarning):
        assert Run.load(saved).problems


def test_line_ends_of_a_run_file_may_change(saved):
    """Version control and mail change them."""
    saved.write_bytes(saved.read_bytes().replace(b"\n", b"\r\n"))
    assert not Run.load(saved).problems


def test_numbers_that_json_cannot_store_become_texts(saved):
    lines = saved.read_text().splitlines()
    lines[0] = '{"type": "header", "dynx_run": 1, "began": 1e999, "torch": NaN}'
    saved.write_text("\n".join(lines[:-1]) + "\n")
    run = Run.load(saved)
    assert run.header["began"] == "inf"
    json.loads(run.to_json(), parse_constant=pytest.fail)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_devices_and_pipes_are_no_run_files(tmp_path):
    """A pipe that nobody writes to would never end, nor would /dev/zero."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BadRunFile, match="is a device or a pipe"):
            Run.load(path)


@pytest.mark.parametrize("content", [b"", b"not a run\n", b'{"type": "compile"}\n', b"\x00" * 100])
def test_loading_a_file_that_is_no_run_file_raises(tmp_path, content):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(BadRunFile, match="dynx run"):
        Run.load(path)


def test_writing_a_run_file_on_a_full_disk_warns_and_does_not_raise():
    with pytest.warns(DynxWarning, match="cannot write /dev/full: No space left on device; the program goes on"):
        writer = RunWriter(Path("/dev/full"), {})
    writer.write(COMPILE)
    writer.end({})


def test_run_writer_puts_each_record_on_disk_immediately(tmp_path):
    """A process that is killed leaves a file with its records."""
    path = tmp_path / "run.dynx"
    writer = RunWriter(path, {})
    writer.write(COMPILE)
    assert json.loads(path.read_text().splitlines()[1])["id"] == "0/0"
    writer.end({})


NO_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "functorch"):
            raise ImportError("torch is not here")
sys.meta_path.insert(0, Blocked())
from dynx.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "command", [["show"], ["show", "--full"], ["show", "--json"], ["assert", "--max-compiles", "9"]], ids=" ".join
)
def test_dynx_show_and_assert_read_a_run_file_where_torch_cannot_be_imported(saved, command):
    """Users read runs on a laptop, where `import torch` takes seconds or fails."""
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, command[0], str(saved), *command[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "compile" in done.stdout


def test_dynx_rule_explains_a_rule_where_torch_cannot_be_imported():
    done = subprocess.run([sys.executable, "-c", NO_TORCH, "rule", "DX101"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "DX101" in done.stdout
