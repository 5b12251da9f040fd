"""The command line: options behind the program, unknown options, and mistyped commands."""

from __future__ import annotations

import pytest

from dynx.cli import _parser, main
from dynx.cli.arguments import misplaced, split

PROGRAM = "import sys; print(sys.argv[1:])"


@pytest.mark.parametrize(
    ("command", "program", "options", "example"),
    [
        (["fix"], ["train.py"], ["--budget", "60"], "dynx fix --budget 60 train.py"),
        (["fix"], ["train.py"], ["--lr", "3", "--tolerance=1e-2", "--apply"], "dynx fix --tolerance=1e-2 --apply train.py"),
        (["run"], ["train.py"], ["--out", "my run.dynx"], "dynx run --out 'my run.dynx' train.py"),
        (["run"], ["my train.py"], ["--full"], "dynx run --full 'my train.py'"),
        (["run", "--top", "3"], ["-m", "package"], ["--full"], "dynx run --full -m package"),
        (["run"], ["-c", "print(1)"], ["--full"], "dynx run --full -c …"),
        (["guards"], ["train.py::step"], ["--json"], "dynx guards --json train.py::step"),
        (["memory"], ["train.py::step"], ["--json"], "dynx memory --json train.py::step"),
    ],
)
def test_options_of_dynx_behind_the_program_are_named_in_one_line(command, program, options, example):
    """`dynx fix train.py --budget 60` gives the option to the program, and tries for ten minutes."""
    found = split(_parser(), [*command, *program, *options])
    assert found.rest == options, "the program gets them"
    line = misplaced(found)
    assert line.endswith(f" is passed to the program, since options of dynx {command[0]} stand before it: {example}")
    assert "\n" not in line


@pytest.mark.parametrize(
    "words",
    [
        ["run", "train.py", "--lr", "3", "-m", "-c"],
        ["run", "train.py", "--help"],
        ["run", "train.py", "--", "--out", "a"],
        ["run", "train.py", "out", "full"],
        ["run", "--full", "train.py"],
        ["fix", "train.py", "--full"],  # an option of another command
        ["show", "run.dynx", "--full"],  # runs no program
        ["check", "steps:f", "--json"],
    ],
    ids=" ".join,
)
def test_arguments_that_are_no_options_of_the_command_are_not_commented_on(words):
    assert misplaced(split(_parser(), words)) == ""


@pytest.mark.slow
def test_a_program_gets_the_options_behind_it(shell, program):
    done = shell("-m", "dynx", "run", program(PROGRAM), "--out", "mine.dynx")
    assert done.stdout == "['--out', 'mine.dynx']\n"
    assert done.stderr.count("is passed to the program") == 1


@pytest.mark.parametrize(
    ("words", "usage", "error"),
    [
        (["show", "--ful"], "usage: dynx show ", "unknown option --ful\n  did you mean --full?"),
        (["run", "--ful", "train.py"], "usage: dynx run ", "unknown option --ful\n  did you mean --full?"),
        (["fix", "--budgt=3", "train.py"], "usage: dynx fix ", "unknown option --budgt\n  did you mean --budget?"),
        (["diff", "a", "b", "--xyz"], "usage: dynx diff ", "unknown option --xyz\n"),
        (["assert", "--max-recompile", "0"], "usage: dynx assert ", "did you mean --max-recompiles?"),
        (["pgo", "dump", "a", "--jsn"], "usage: dynx pgo dump ", "unknown option --jsn\n  did you mean --json?"),
        (["pgo", "apply", "a.json", "--jsn", "b.py"], "usage: dynx pgo apply ", "unknown option --jsn"),
        (["cache", "why", "a", "b", "--jsn"], "usage: dynx cache why ", "unknown option --jsn"),
        (["guards", "--jsn", "a.py::f"], "usage: dynx guards ", "unknown option --jsn"),
        (["check", "steps:f", "--call", "3"], "usage: dynx check ", "unknown option --call\n  did you mean --calls?"),
        (["rule", "DX101", "DX102"], "usage: dynx rule ", "unexpected argument DX102"),
        (["--jsn", "show"], "usage: dynx ", "unknown option --jsn"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_unknown_option_is_refused_with_the_usage_of_the_command(words, usage, error, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    printed = capsys.readouterr().err
    assert printed.startswith(usage)
    assert error in printed


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["shwo"], "dynx has no command shwo\n  did you mean dynx show?"),
        (["gaurds", "a.py::f"], "did you mean dynx guards?"),
        (["pgo", "dmp", "a"], "dynx pgo has no command dmp\n  did you mean dynx pgo dump?"),
        (["cache", "whyy", "a", "b"], "did you mean dynx cache why?"),
        (["train.py", "--lr", "3"], "dynx has no command train.py\n  to run a program: dynx run train.py"),
        (["zzzzz"], "dynx has no command zzzzz\n  dynx --help lists them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistyped_command_is_suggested(words, hint, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    printed = capsys.readouterr().err
    assert hint in printed
    assert "invalid choice" not in printed


def test_options_are_not_abbreviated(capsys):
    """`dynx run --ou a.dynx train.py` would run a program named a.dynx."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--ou", "a.dynx", "train.py"])
    assert "did you mean --out?" in capsys.readouterr().err
