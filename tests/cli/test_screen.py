"""How wide commands print, and for which terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from rich.cells import cell_len

from dynx import Run
from dynx.cli import main
from dynx.cli.progress import fitted
from dynx.records import Compile, Location, Reason, Recompile

LONG = "/home/somebody/experiments/language_models/configurations/of_november/training_model.py"


@pytest.fixture
def saved(tmp_path):
    """Save a run whose location is too long for a terminal of 80 columns."""
    line = Location(LONG, 12345, "Net.forward")
    reason = Reason("size", "x.size()[1]", "3", "4", line, holder="argument")
    path = tmp_path / "run.dynx"
    records = (Compile(0, "0/0", line, "compiled", 1.5), Recompile(0, "0/1", line, (reason,), 2.0))
    Run(records, {"torch": "2.13.0", "command": ["dynx", "run", LONG]}, {"seconds": 3.0}).save(path)
    return str(path)


def widest(text):
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("command", [["show"], ["show", "--full"], ["diff"]], ids=" ".join)
def test_a_report_in_a_pipe_is_as_wide_as_columns_says(saved, command, capsys, monkeypatch):
    for columns in (40, 80, 120, 140, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        main([*command, saved, *([saved] if command == ["diff"] else [])])
        printed = capsys.readouterr().out
        assert widest(printed) <= columns
        assert [line for line in printed.splitlines() if line != line.rstrip()] == []
        if command != ["diff"]:
            assert "training_model.py:12345" in printed


@pytest.mark.parametrize("columns", ["", "0", "-3", "wide", "1", "12"])
def test_columns_that_are_no_width_do_not_break_a_report(saved, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["show", saved]) == 0
    assert "DX102" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["rule"], ["rule", "DX102"], ["doctor"]], ids=" ".join)
def test_other_commands_print_no_blanks_at_the_end_of_a_line_in_a_pipe(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    main(command)
    assert [line for line in capsys.readouterr().out.splitlines() if line != line.rstrip()] == []


def on_a_terminal(columns, *command, **environment):
    """Run a command on a terminal of some width, and return what it prints there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    variables = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "TERM", "FORCE_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "dynx", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=variables | environment
    )
    os.close(theirs)
    printed = b""
    try:
        while part := os.read(ours, 10_000):
            printed += part
    except OSError:  # the process has ended
        pass
    process.wait()
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def without_escapes(printed):
    return re.sub(r"\x1b\]8;.*?\x1b\\|\x1b\[[\d;]*m", "", printed)


def test_a_report_fills_the_terminal(saved):
    narrow, wide = (on_a_terminal(columns, "show", saved, TERM="xterm", NO_COLOR="1") for columns in (72, 160))
    assert 60 < widest(without_escapes(narrow)) <= 72
    assert "lost  rule   where" in without_escapes(wide)
    assert "\x1b[36m" not in wide, "no colours were asked for"


def test_columns_is_respected_on_a_dumb_terminal(saved):
    """Editors and CI set both; rich takes 80 columns of every dumb terminal."""
    printed = on_a_terminal(90, "show", saved, TERM="dumb", COLUMNS="130")
    assert "lost  rule   where" in printed
    assert "\x1b" not in printed
    assert widest(on_a_terminal(60, "show", saved, TERM="dumb")) <= 60


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("file", [LONG, "/home/誰か/実験/言語モデル/訓練.py", "model.py"])
def test_the_line_of_the_compilation_in_progress_fits_the_terminal(width, file, monkeypatch):
    """A line that the terminal wraps could not be erased; its number is whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    line = fitted(" compiling 12/3 GPTNeoXJapaneseModel.forward ", f"{file}:12345")
    assert cell_len(line) < width
    assert line.endswith(".py:12345")
