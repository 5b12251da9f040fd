"""`dynx run -c code` and `dynx run -` behave as `python -c code` and `python -`, and reports show lines of such programs."""

from __future__ import annotations

import json
import linecache
import re
import sys

import pytest

from dynx import Run
from dynx.cli import _parser, main, program
from dynx.cli.arguments import split

ENVIRONMENT = """
import os, sys, signal, warnings
class Value:
    pass
print(sys.argv, __name__, __package__, __spec__, __doc__, __loader__, repr(sys.path[0]), Value.__module__)
print(sorted(globals()), globals().get("__file__"), globals().get("__cached__", "absent"))
print(sys.modules["__main__"].__dict__ is globals(), __builtins__.__name__, sys.excepthook is sys.__excepthook__)
os.mkdir("elsewhere"), os.chdir("elsewhere"), open("mine.py", "w").close()
import mine
print(mine.__name__, repr(sys.stdin.read()))
os.remove("mine.py"), os.chdir(".."), __import__("shutil").rmtree("elsewhere")
"""


@pytest.fixture
def as_code(shell):
    """Return a function that runs code with `python -c` and with `dynx run -c`."""

    def run(source, *arguments, **options):
        return (
            shell("-c", source, *arguments, **options),
            shell("-m", "dynx", "run", "--out", "run.dynx", "-c", source, *arguments, **options),
        )

    return run


@pytest.fixture
def as_stdin(shell):
    """Return a function that passes code on standard input to `python -` and to `dynx run -`."""

    def run(source, *arguments):
        return (
            shell("-", *arguments, input=source),
            shell("-m", "dynx", "run", "--out", "run.dynx", "-", *arguments, input=source),
        )

    return run


@pytest.fixture(params=["as_code", "as_stdin"])
def both_ways(request):
    """Return `as_code` and then `as_stdin`."""
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_program_without_a_file_sees_the_same_interpreter_state_as_under_python(both_ways):
    plain, watched = both_ways(ENVIRONMENT, "--flag", "-c", "value", "--", "--out", "-")
    assert plain.returncode == 0, plain.stderr
    assert "'--flag', '-c', 'value', '--', '--out', '-'" in plain.stdout
    assert watched.stdout == plain.stdout
    assert watched.returncode == 0


@pytest.mark.slow
def test_code_of_a_program_can_read_standard_input(as_code):
    plain, watched = as_code("import sys; print(sys.stdin.read())", input="typed")
    assert watched.stdout == plain.stdout == "typed\n"


PRINTS_A_TRACEBACK = """
import sys, traceback, warnings
warnings.warn("mine")
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc(file=sys.stdout)
sys.exit("a message")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("def f():\n    1 / 0\nf()", 1),
        ("def f(:\n", 1),
        (PRINTS_A_TRACEBACK, 1),
        ("def f(): pass\nimport inspect\ninspect.getsource(f)", 1),
        ("import os, signal; signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)", -2),
        ("", 0),
    ],
    ids=["raises", "SyntaxError", "prints a traceback", "inspect.getsource", "Ctrl-C", "empty"],
)
def test_program_without_a_file_has_the_output_and_exit_code_that_it_has_under_python(both_ways, source, code):
    same_output(*both_ways(source), code)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code"),
    [("import sys; sys.exit(3)", 3), ("# -*- coding: latin-1 -*-\nprint(ascii('ä'))", 0), ("-1", 0)],
    ids=["exit 3", "coding cookie", "begins with a dash"],
)
def test_code_has_the_output_and_exit_code_that_it_has_under_python(as_code, source, code):
    same_output(*as_code(source), code)


def same_output(plain, watched, code):
    assert plain.returncode == watched.returncode == code
    assert watched.stdout == plain.stdout
    assert watched.stderr.startswith(plain.stderr)
    assert "dynx/cli" not in watched.stderr


MODEL = """
import sys, torch

class Model(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return x * 2

model = torch.compile(Model(), backend="eager")
model(torch.ones(3))
"""


@pytest.mark.slow
def test_findings_show_the_line_of_a_program_without_a_file(both_ways, tmp_path):
    """`linecache` has no lines of such a program."""
    _, watched = both_ways(MODEL)
    file = "<string>" if watched.args[6] == "-c" else "<stdin>"
    assert watched.returncode == 0, watched.stderr
    assert f"{file}:6  Model.forward" in watched.stderr
    assert "if x.sum() > 0: x = x + 1" in " ".join(watched.stderr.split())
    (finding,) = Run.load(tmp_path / "run.dynx").findings
    assert (finding.location.file, finding.location.line) == (file, 6)


@pytest.mark.slow
def test_title_of_a_report_has_the_first_line_of_the_code(shell):
    done = shell("-m", "dynx", "run", "-c", "import sys\nprint(sys.argv)", "a")
    assert done.stderr.splitlines()[1].startswith(" dynx run -c 'import sys…' a ")


@pytest.mark.slow
def test_findings_show_no_line_of_the_program_for_other_code_without_a_file(as_code, tmp_path):
    """The file of code passed to `exec` is `<string>` too: line 2 of it is not line 2 of the program."""
    source = (
        "import torch\n"
        "names = {'torch': torch}; first = 'the second line of the program'\n"
        "exec('def f(x):\\n    if x.sum() > 0: return x\\n    return -x', names)\n"
        "torch.compile(names['f'], backend='eager')(torch.ones(3))\n"
    )
    _, watched = as_code(source)
    assert watched.returncode == 0, watched.stderr
    (graph_break,) = Run.load(tmp_path / "run.dynx").graph_breaks
    assert (graph_break.location.file, graph_break.location.line, graph_break.code) == ("<string>", 2, "")


def test_dynx_run_c_without_code_is_a_usage_error(capsys):
    for words, message in ((["run", "-c"], "-c without code"), (["run", "-m"], "-m without"), (["run"], "no program to run")):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"dynx: the command line is incomplete: {message}")
        assert "\n  for example: dynx run " in error


def test_options_of_dynx_end_at_the_program():
    for words, own in (
        (["run", "--full", "-c", "--out", "--full"], ["run", "--full", "-c", "--", "--out"]),
        (["run", "--out", "a.dynx", "-", "--full"], ["run", "--out", "a.dynx", "--", "-"]),
        (["guards", "--json", "-::step", "-c"], ["guards", "--json", "--", "-::step"]),
        (["guards", "--function", "step", "-c", "code", "x"], ["guards", "--function", "step", "-c", "--", "code"]),
        (["run", "--pgo", "p.json", "a.py", "--out"], ["run", "--pgo", "p.json", "--", "a.py"]),
        (["pgo", "apply", "p.json", "-m", "package", "-x"], ["pgo", "apply", "-m", "--", "p.json", "package"]),
    ):
        assert split(_parser(), words)[1:3] == (own, words[len(own) - 1 :])
    assert split(_parser(), ["run", "--out"])[1:3] == (["run", "--out"], [])  # argparse says what is missing


def test_code_is_added_to_linecache_only_where_python_does(monkeypatch):
    """Python 3.13 shows source lines in the tracebacks of `python -c`, Python 3.11 does not."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    calls = []
    monkeypatch.setattr(linecache, "_register_code", lambda *words: calls.append(words), raising=False)
    monkeypatch.setattr(linecache, "_interactive_cache", {}, raising=False)
    code = program.load_code("a = 1")[0]()
    monkeypatch.delattr(linecache, "_interactive_cache")  # as in Python 3.13.0
    program.load_code("a = 1")[0]()
    assert calls == [(code, "a = 1\n", "<string>"), ("<string>", "a = 1\n", "<string>")]
    monkeypatch.delattr(linecache, "_register_code")
    program.load_code("a = 1")[0]()
    assert len(calls) == 2
    assert linecache.getlines("<string>") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "source"),
    [
        (["--function", "Model.forward", "-c", MODEL], None),
        (["--function", "model", "-"], MODEL),
        (["-::model"], MODEL),
    ],
    ids=["-c", "--function -", "-::model"],
)
def test_dynx_guards_lists_the_cache_entries_of_a_program_without_a_file(shell, words, source):
    done = shell("-m", "dynx", "guards", *words, "a", input=source)
    assert done.returncode == 0, done.stderr
    assert re.match(r"Model.forward  <\w+>:5  2 versions", done.stdout)
    assert re.search(r"  x  .*float32.*  <\w+>:6 *$", done.stdout, re.M)  # the line that requested the guard


@pytest.mark.slow
def test_dynx_guards_passes_the_other_arguments_to_the_code(shell):
    done = shell("-m", "dynx", "guards", "--json", "--function", "model", "-c", MODEL + "print(sys.argv)", "--json", "a")
    assert done.stderr.splitlines()[-1] == "['-c', '--json', 'a']"
    assert len(json.loads(done.stdout)["entries"]) >= 1


def test_dynx_guards_with_code_and_no_function_is_a_usage_error(capsys):
    assert main(["guards", "-c", "x = 1"]) == 2
    assert "for example: dynx guards --function step -c" in capsys.readouterr().err
