"""Programs of every kind that Python runs, and programs that close or replace what `dynx run` uses at exit."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dynx import Run
from dynx._runfile.own_file import OwnFile
from dynx.cli import program as programs
from dynx.cli.run import _absolute

pytestmark = pytest.mark.slow

STATE = """import sys
names = ("__file__", "__package__", "__cached__", "__doc__")
print(sys.argv, __name__, *(globals().get(name) for name in names))
print(type(__loader__).__name__, getattr(__spec__, "name", None), sys.path[0])
"""


def archive(folder):
    with zipfile.ZipFile(folder / "app.pyz", "w") as file:
        file.writestr("__main__.py", f"{STATE}import inner\n1 / 0\n")
        file.writestr("inner.py", "print(__name__)")
    return ["app.pyz", "a"]


def compiled_file(folder):
    (folder / "p.py").write_text(STATE)
    py_compile.compile(str(folder / "p.py"), cfile=str(folder / "p.pyc"))
    return ["p.pyc", "a"]


def not_compiled_file(folder):
    (folder / "bad.pyc").write_bytes(b"no magic number")
    return ["bad.pyc"]


def link(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "real.py").write_text(STATE)
    (folder / "link.py").symlink_to(Path("inner") / "real.py")
    return ["link.py"]


def source(data):
    def write(folder):
        (folder / "program.py").write_bytes(data)
        return ["program.py", "-x"]

    return write


PROGRAMS = {
    "archive": archive,
    "compiled file": compiled_file,
    "file that is not compiled": not_compiled_file,
    "symbolic link": link,
    "standard input": lambda folder: ["-", "a"],
    "/dev/stdin": lambda folder: ["/dev/stdin", "a"],
    "code": lambda folder: ["-c", STATE, "a"],
    "Latin-1": source("# -*- coding: latin-1 -*-\nprint('caf\xe9'.encode())\n".encode("latin-1")),
    "Latin-1 undeclared": source("x = 1\nprint('caf\xe9')\n".encode("latin-1")),
    "unknown encoding": source(b"# coding: nothing\nprint(1)\n"),
    "byte order mark": source(b"\xef\xbb\xbfprint('bom')\n"),
    "null byte": source(b"x = 1\nprint(1)\0\n"),
    "empty": source(b""),
    "exception in a hook": source(
        b"import torch\ndef bad(g, i): raise ValueError('no')\ntorch.compile(lambda x: x + 1, backend=bad)(torch.ones(2))\n"
    ),
    "exception of a child": source(b"import subprocess\nsubprocess.run(['/no/such'])\n"),
}


def run(words, folder, **options):
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300, **options
    )


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_behaves_as_under_python(make, tmp_path):
    words = make(tmp_path)
    plain = run([sys.executable, *words], tmp_path, input=STATE)
    watched = run([sys.executable, "-m", "dynx", "run", *words], tmp_path, input=STATE)
    assert (watched.stdout, watched.returncode) == (plain.stdout, plain.returncode)
    expected = re.sub(r'  File "<frozen runpy>".*\n', "", plain.stderr)  # Python runs archives in a module of its own
    assert watched.stderr.startswith(expected.rstrip("\n"))


@pytest.mark.parametrize("redirection", ["<(cat program.py)", "program.py 2>&-", "program.py >&-", "program.py 2>&- >&- <&-"])
def test_a_program_behaves_as_under_python_in_a_shell(redirection, tmp_path):
    (tmp_path / "program.py").write_text(STATE)
    results = [
        run(["bash", "-c", f"{command} {redirection}"], tmp_path)
        for command in (sys.executable, f"{sys.executable} -m dynx run")
    ]
    plain, watched = results
    assert watched.stdout.replace("/dev/fd/62", "/dev/fd/63") == plain.stdout.replace("/dev/fd/62", "/dev/fd/63")
    assert watched.returncode == plain.returncode == 0


TEE = """import sys
class Tee:
    def __init__(self, stream):
        self.stream = stream
    def write(self, text):
        return self.stream.write(text)
    def flush(self):
        self.stream.flush()
sys.stderr = Tee(sys.stderr)
"""
COMPILES = "import os, torch\nf = torch.compile(lambda x: x + 1, backend='eager', dynamic=False)\nf(torch.ones(2))\n"
ENDINGS = {
    "tee": TEE,
    "no stderr": "import sys; sys.stderr = None",
    "closed stderr": "os.close(2)",
    "closed streams": "os.close(2); os.close(1)",
    "closed descriptors": "os.closerange(3, 256)\nf(torch.ones(3))",
    "taken descriptors": "os.closerange(3, 256)\nfiles = [open(f'{n}.txt', 'w') for n in range(30)]\nf(torch.ones(3))",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_lost_by_what_a_program_closes(ending, tmp_path):
    (tmp_path / "program.py").write_text(f"{COMPILES}{ENDINGS[ending]}\n")
    result = run([sys.executable, "-m", "dynx", "run", "program.py"], tmp_path)
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    saved = Run.load(tmp_path / ".dynx" / "last.dynx")
    assert len(saved.compiles) == (2 if "descriptors" in ending else 1)
    assert saved.is_complete
    assert [file.read_text() for file in tmp_path.glob("*.txt")] == [""] * 30 * (ending == "taken descriptors")
    if ending in ("tee", "closed descriptors", "taken descriptors"):
        assert "saved: dynx show" in result.stderr


def test_full_disk_of_stderr_does_not_change_the_exit_code(tmp_path):
    (tmp_path / "program.py").write_text("print('out')")
    result = run(["bash", "-c", f"{sys.executable} -m dynx run program.py 2>/dev/full"], tmp_path)
    assert (result.stdout, result.returncode) == ("out\n", 0)


def test_a_run_that_could_not_be_written_is_not_reported_as_saved(tmp_path):
    (tmp_path / "program.py").write_text("import shutil\nshutil.rmtree('.dynx')\nimport os\nos.closerange(3, 256)\n")
    result = run([sys.executable, "-m", "dynx", "run", "program.py"], tmp_path)
    assert result.returncode == 0
    assert "saved:" not in result.stderr


def test_a_folder_without_main_is_an_error_that_says_so(tmp_path):
    result = run([sys.executable, "-m", "dynx", "run", "."], tmp_path)
    assert (result.returncode, result.stderr) == (2, "dynx: the folder . has no __main__.py\n  name a file in it\n")


def test_a_deleted_working_directory(tmp_path, monkeypatch):
    """In this process: torch itself cannot be imported there (its MKL is not found)."""
    script, gone = tmp_path / "program.py", tmp_path / "gone"
    script.write_text("x = 1")
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    gone.rmdir()
    load, module = programs.load_script(str(script))
    exec(load(), vars(module))
    assert module.x == 1
    assert sys.path[0] == str(tmp_path)
    assert _absolute(Path("last.dynx")) == Path("last.dynx")


def test_an_own_file_writes_nothing_to_a_file_that_got_its_descriptor(tmp_path):
    file = OwnFile(tmp_path / "a.dynx")
    file.write(b"1")
    os.close(file.fileno())
    with (tmp_path / "other").open("wb", buffering=0) as other:
        assert other.fileno() == file.fileno()
        file.write(b"2")
        os.replace(tmp_path / "a.dynx", tmp_path / "a.77.dynx")
        assert file.path == tmp_path / "a.77.dynx"
        os.close(file.fileno())
        file.write(b"3")
        file.close()
        assert other.tell() == 0
    assert (tmp_path / "a.77.dynx").read_bytes() == b"123"
    (tmp_path / "a.77.dynx").unlink()
    with pytest.raises(FileNotFoundError):
        file.write(b"4")
