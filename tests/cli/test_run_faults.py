"""Failures around `dynx run`: the program is not affected, and the run file has the records up to the failure."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import pytest

from dynx import Run
from dynx.errors import DynxWarning

pytestmark = pytest.mark.slow

COMPILES = """
import torch
f = torch.compile(lambda x: x + 1, backend="eager")
f(torch.ones(3))
"""


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DynxWarning)
        return Run.load(path)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ("", "finished"),
        ("raise SystemExit(3)", "exit 3"),
        ("1 / 0", "raised ZeroDivisionError"),
        (
            "import os, signal; signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)",
            "raised KeyboardInterrupt",
        ),
    ],
    ids=["returns", "SystemExit", "raises", "Ctrl-C"],
)
def test_run_file_records_how_the_program_ended(program, shell, tmp_path, ending, outcome):
    shell("-m", "dynx", "run", "--out", "run.dynx", program(COMPILES + ending))
    run = load(tmp_path / "run.dynx")
    assert len(run.compiles) == 1
    assert run.end["outcome"] == outcome


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
def test_run_file_of_a_killed_program_has_its_compiles(program, shell, tmp_path, signal):
    source = COMPILES + f"import os, signal; os.kill(os.getpid(), signal.{signal})"
    shell("-m", "dynx", "run", "--out", "run.dynx", program(source))
    run = load(tmp_path / "run.dynx")
    assert len(run.compiles) == 1
    assert not run.is_complete
    shown = shell("-m", "dynx", "show", "run.dynx")
    assert "did not finish" in shown.stdout


def test_run_file_of_a_program_that_calls_os_exit_has_its_compiles(program, shell, tmp_path):
    shell("-m", "dynx", "run", "--out", "run.dynx", program(COMPILES + "import os; os._exit(7)"))
    assert len(load(tmp_path / "run.dynx").compiles) == 1


def test_forked_child_process_writes_its_own_run_file(program, shell, tmp_path):
    source = (
        COMPILES
        + """
import os
pid = os.fork()
if pid == 0:
    torch.compile(lambda x: x * 3, backend="eager")(torch.ones(3))
    raise SystemExit(0)
os.waitpid(pid, 0)
print("parent")
"""
    )
    done = shell("-m", "dynx", "run", "--out", "run.dynx", program(source))
    assert done.stdout == "parent\n"
    assert done.stderr.count("compiling") == 1, "the child must not report"
    assert len(load(tmp_path / "run.dynx").compiles) == 1
    (child,) = [path for path in tmp_path.glob("run.*.dynx") if path.name != "run.dynx"]
    assert len(load(child).compiles) == 1


def starting(work, method="spawn", imports=""):
    """Return a program that starts a child process, prints what the child puts into the queue, and the child's exit code."""
    return f"""
import multiprocessing
import sys
{imports}

def work(queue):
    {work}

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    queue = context.SimpleQueue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get())
    child.join()
    print(child.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_child_process_writes_its_own_run_file(program, shell, tmp_path, method):
    work = """torch.compile(lambda x: x * 3, backend="eager")(torch.ones(3))
    queue.put("child")"""
    source = starting(work, method, "import torch")
    done = shell("-m", "dynx", "run", "--out", "run.dynx", program(source))
    assert done.stdout == "child\n0\n"
    assert done.stderr.count("saved:") == 1, "the child must not report"
    assert load(tmp_path / "run.dynx").compiles == ()
    (child,) = [path for path in tmp_path.glob("run.*.dynx") if path.name != "run.dynx"]
    assert re.search(rf"child {child.suffixes[0][1:]} +1 compile +0 recompiles +0 graph breaks +{child.name}", done.stderr)
    run = load(child)
    assert len(run.compiles) == 1
    assert run.end["outcome"] == "finished"


@pytest.mark.parametrize("imports", ["", "import torch"])
def test_spawned_child_process_that_compiles_nothing_pays_nothing(program, shell, tmp_path, imports):
    """Workers of a DataLoader are such children: they neither import Dynamo, nor dynx's watch, nor write a file."""
    names = """[name for name in ("torch", "torch._dynamo", "dynx.session") if name in sys.modules]"""
    source = starting(f"""{imports or "pass"}
    queue.put({names})""")
    done = shell("-m", "dynx", "run", "--out", "run.dynx", program(source))
    assert done.stdout == f"{['torch'] if imports else []}\n0\n"
    assert [path.name for path in tmp_path.glob("*.dynx")] == ["run.dynx"]


def test_spawned_child_process_that_cannot_import_dynx_runs_without_a_watch(program, shell, tmp_path):
    """The parent pickles an entry that starts a watch in the child; it must not fail if the child cannot import dynx."""
    source = """
import multiprocessing
import sys

def work(queue):
    queue.put("dynx" in sys.modules)

if __name__ == "__main__":
    import dynx._child_processes as spawned
    spawned._START_WATCH = spawned._START_WATCH.replace("dynx._on_import", "dynx._missing")
    import dynx
    with dynx.watch(out="other.dynx"):
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        child = context.Process(target=work, args=(queue,))
        child.start()
        print(queue.get())
        child.join()
        print(child.exitcode)
"""
    done = shell(program(source))
    assert done.stdout.splitlines()[1:] == ["0"]
    assert "dynx does not watch this child: ModuleNotFoundError" in done.stderr


def test_program_under_dynx_run_may_reset_dynamo_and_open_a_watch(program, shell, tmp_path):
    source = (
        COMPILES
        + """
import dynx
with dynx.watch() as inner:
    torch._dynamo.reset()
    f(torch.ones(3))
print(len(inner.compiles))
"""
    )
    done = shell("-m", "dynx", "run", "--out", "run.dynx", program(source))
    assert done.stdout == "1\n"
    assert [compile.key for compile in load(tmp_path / "run.dynx").compiles] == [(0, "0/0"), (1, "0/0")]


@pytest.mark.parametrize("out", ["/proc/nope/run.dynx", "/dev/full"])
def test_run_file_that_cannot_be_written_warns_and_the_program_continues(program, shell, out):
    done = shell("-m", "dynx", "run", "--out", out, program(COMPILES + "print('done')"))
    assert done.returncode == 0
    assert done.stdout == "done\n"
    assert "the program goes on, the run is not saved" in done.stderr
    assert "1 compile" in done.stderr


def test_run_file_path_is_resolved_before_the_program_changes_directory(program, shell, tmp_path):
    shell("-m", "dynx", "run", "--out", "run.dynx", program(COMPILES + "import os; os.chdir('/')"))
    assert len(load(tmp_path / "run.dynx").compiles) == 1


@pytest.mark.parametrize(
    "ending",
    ["sys.stdout = None", "sys.stdout.close()", "sys.stderr = open(os.devnull, 'w')"],
    ids=["stdout None", "stdout closed", "stderr to devnull"],
)
def test_program_under_dynx_run_may_close_or_replace_stdout_and_stderr(program, shell, ending):
    done = shell("-m", "dynx", "run", program(f"import os, sys\n{ending}\n"))
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_run_file_name_with_brackets_is_not_parsed_as_rich_markup(program, shell, tmp_path):
    done = shell("-m", "dynx", "run", "--out", "o[/b].dynx", program("print(1)"))
    assert done.returncode == 0
    assert "o[/b].dynx" in done.stderr


def test_dynx_run_of_an_interrupted_program_ends_by_sigint(program, tmp_path):
    path = program("import os, signal; signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)")
    script = f"{sys.executable} -m dynx run {path} 2>/dev/null; echo code $?"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == "code 130\n"


def test_closed_stdout_and_stderr_pipes_do_not_fail_the_program(program, tmp_path, shell):
    done = shell(
        "-c",
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'dynx', 'run', 'program.py'],"
        " stdout=subprocess.PIPE, stderr=subprocess.PIPE); p.stdout.close(); p.stderr.close(); p.wait()",
    )
    assert done.returncode == 0
