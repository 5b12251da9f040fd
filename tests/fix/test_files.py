"""How `dynx fix` reads, compares and writes files: encodings, line endings, marks, and diffs that tools accept."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from dynx._rewrites.source_file import read, write
from dynx.fix._report import unified_diff

CONTENTS = {
    "plain": b"import torch\nx = 1\n",
    "no newline at the end": b"import torch\nx = 1",
    "windows": b"import torch\r\nx = 1\r\n",
    "byte order mark": b"\xef\xbb\xbfimport torch\nx = 1\n",
    "latin-1": b"# -*- coding: latin-1 -*-\nimport torch  # caf\xe9\nx = 1\n",
    "form feed": b"import torch\n\x0c\nx = 1\n",
    "line separator in a string": "import torch\ns = 'a\u2028b\x1c'\nx = 1\n".encode(),
}


without_patch = pytest.mark.skipif(shutil.which("patch") is None, reason="this machine has no `patch` command")
TOOLS = [["git", "apply"], pytest.param(["patch", "-s", "-p1"], marks=without_patch)]


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_read_is_written_again(tmp_path, name):
    file = tmp_path / "program.py"
    file.write_bytes(CONTENTS[name])
    write(str(file), read(str(file)))
    assert file.read_bytes() == CONTENTS[name]


@pytest.mark.parametrize("tool", TOOLS, ids=" ".join)
@pytest.mark.parametrize("name", [name for name in CONTENTS if name not in ("latin-1", "byte order mark")])
@pytest.mark.parametrize("file_name", ["program.py", "my program.py"])
def test_tools_apply_the_diff(tmp_path, monkeypatch, name, tool, file_name):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / file_name
    file.write_bytes(CONTENTS[name])
    changed = read(str(file)).replace("x = 1", "x = 2")
    diff = unified_diff({str(file): changed})
    subprocess.run(tool, input=diff.encode(), check=True)
    assert read(str(file)) == changed


def test_a_diff_names_the_file_behind_a_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real.py").write_text("x = 1\n")
    (tmp_path / "link.py").symlink_to("real.py")
    assert unified_diff({str(tmp_path / "link.py"): "x = 2\n"}).startswith("--- a/real.py\n+++ b/real.py\n")
