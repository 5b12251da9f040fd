"""`dynx fix` and `dynx run --try` as a user calls them: what they print, write and refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from dynx import Run

LOGGED = """
    import torch

    @torch.compile(backend="eager")
    def f(x):
        print("inside")  # for people
        return x * 2

    for size in (3, 4):
        print(f(torch.ones(size)).sum().item())
"""
SETTINGS = "torch._dynamo.config.reorderable_logging_functions.add(print)"


def dynx(folder: Path, *arguments: str, **environment: str):
    return subprocess.run(
        [sys.executable, "-m", "dynx", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "160"} | environment,
    )


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(dedent(text).lstrip())
    return path


@pytest.mark.slow
def test_fixes_are_printed_as_a_diff(tmp_path):
    program = write(tmp_path, LOGGED)
    before = program.read_text()
    found = dynx(tmp_path, "fix", "program.py")
    assert found.returncode == 0, found.stderr
    assert program.read_text() == before
    assert "runs program.py once as it is, then again for each fix" in found.stderr
    assert "2 fixes: recompiles 1 → 0, graph breaks 1 → 0" in found.stdout, found.stdout
    diff = found.stdout[found.stdout.index("--- a/program.py") :]
    assert f"+{SETTINGS}" in diff
    subprocess.run(["git", "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    assert "# for people" in program.read_text()


@pytest.mark.slow
def test_only_apply_writes_fixes(tmp_path):
    program = write(tmp_path, LOGGED)
    before = program.read_text()
    applied = dynx(tmp_path, "fix", "--apply", "program.py")
    assert "wrote program.py" in applied.stderr
    after = program.read_text()
    diff = applied.stdout[applied.stdout.index("--- a/program.py") :]
    program.write_text(before)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    assert program.read_text() == after
    again = dynx(tmp_path, "fix", "--json", "program.py")
    assert (again.returncode, json.loads(again.stdout).get("trials", [])) == (0, [])


@pytest.mark.slow
def test_files_with_changes_that_git_has_not_are_not_written(tmp_path):
    program = write(tmp_path, LOGGED)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    before = program.read_text()
    refused = dynx(tmp_path, "fix", "--apply", "--budget", "60", "program.py")
    assert refused.returncode == 2
    assert "program.py has changes that are not committed: nothing was written" in refused.stderr
    assert program.read_text() == before
    assert dynx(tmp_path, "fix", "--apply", "--force", "program.py").returncode == 0
    assert program.read_text() != before


REFUSED = {
    "it writes into its folder": (
        LOGGED + '\n    open("log.txt", "a").write("once")\n',
        "the program writes files (log.txt), and each trial of a fix would write them again",
    ),
    "it never ends": (LOGGED + "\n    import time; time.sleep(1000)\n", "did not end within 15 s, and was stopped"),
    "it compiles nothing": ("raise SystemExit('no data')", "the program compiled nothing: no data"),
}


@pytest.mark.slow
@pytest.mark.parametrize("why", REFUSED)
def test_programs_that_cannot_be_tried_are_left_as_they_are(tmp_path, why):
    text, message = REFUSED[why]
    program = write(tmp_path, text)
    before = program.read_text()
    budget = "15" if why == "it never ends" else "100"  # the others end at once, on a slow machine too
    refused = dynx(tmp_path, "fix", "--apply", "--budget", budget, "program.py")
    assert refused.returncode == 2
    assert message in refused.stderr
    assert program.read_text() == before
    assert "Traceback" not in refused.stderr
    if "log.txt" in message:
        assert (tmp_path / "log.txt").read_text() == "once"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.py"], "the file gone.py does not exist"),
        (["-"], "needs a program that can run again"),
        ([], "needs a program that can run again"),
        (["--budget", "0", "a.py"], "0 is not a number of seconds"),
        (["--tolerance", "nan", "a.py"], "nan is not a tolerance"),
        (["--budget", "much", "a.py"], "much is not a number of seconds"),
    ],
)
def test_usage_errors(tmp_path, arguments, message):
    found = dynx(tmp_path, "fix", *arguments)
    assert found.returncode == 2
    assert message in found.stderr


@pytest.mark.slow
def test_a_program_that_fails_may_be_fixed(tmp_path):
    write(
        tmp_path,
        """
        import torch

        @torch.compile(backend="eager", fullgraph=True)
        def f(x):
            if x.sum() > 0:
                return x
            return -x

        print("begins")
        print(f(torch.ones(3)))
        """,
    )
    found = dynx(tmp_path, "fix", "program.py")
    assert found.returncode == 0, found.stdout
    assert "+    return torch.where(x.sum() > 0, x, -x)" in found.stdout
    assert "the program fails as it is" in found.stdout


@pytest.mark.slow
def test_modules_are_fixed_too_and_their_bytecode_on_disk_is_not_replaced(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    write(package, "", "__init__.py")
    write(package, "from package.model import f\nimport torch\nprint(f(torch.ones(3)))\n", "__main__.py")
    write(
        package, "import torch\n@torch.compile(backend='eager')\ndef f(x):\n    return x if x.sum() > 0 else -x\n", "model.py"
    )
    found = dynx(tmp_path, "fix", "-m", "package")
    assert found.returncode == 0, found.stderr
    assert "+++ b/package/model.py" in found.stdout
    assert "+    return torch.where(x.sum() > 0, x, -x)" in found.stdout
    plain = subprocess.run([sys.executable, "-m", "package"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert plain.stdout == "tensor([1., 1., 1.])\n"


@pytest.mark.slow
def test_run_with_try_shows_what_was_tried_beside_the_advice(tmp_path):
    program = write(tmp_path, LOGGED)
    before = program.read_text()
    found = dynx(tmp_path, "run", "--try", "--out", "run.dynx", "program.py")
    assert found.returncode == 0
    assert found.stdout == "inside\n6.0\ninside\n8.0\n"
    (finding,) = Run.load(tmp_path / "run.dynx").findings
    assert finding.advice.startswith(f"{SETTINGS} (tried: ")
    assert "same output)" in found.stderr
    assert program.read_text() == before
    saved = dynx(tmp_path, "show", "run.dynx")
    assert "(tried: " in saved.stdout


@pytest.mark.slow
def test_advice_that_a_what_if_refutes_needs_no_trial_and_is_no_longer_advised(tmp_path):
    write(
        tmp_path,
        """
        import torch

        @torch.compile(backend="eager")
        def f(x):
            for _ in range(x.shape[0]):  # unrolled: the size cannot be dynamic
                x = x + 1
            return x

        for size in (3, 4, 5):
            print(f(torch.ones(size)).sum().item())
        """,
    )
    found = dynx(tmp_path, "run", "--try", "program.py")
    assert "dynamic=True" not in found.stderr
    (finding,) = Run.load(tmp_path / ".dynx" / "last.dynx").findings
    assert {each.outcome for each in finding.what_ifs} == {"raises", "no effect"}
    assert not finding.trials


@pytest.mark.slow
def test_values_that_cannot_be_compared_are_refused_after_the_first_run(tmp_path):
    write(tmp_path, LOGGED + "\n    def callback(): pass\n")
    for name, message in (("gone", "the program has no global variable gone"), ("callback", "cannot be compared")):
        refused = dynx(tmp_path, "fix", "--result", name, "program.py")
        assert refused.returncode == 2
        assert message in refused.stderr


@pytest.mark.slow
def test_ctrl_c_in_the_first_run(tmp_path):
    write(tmp_path, "import time; time.sleep(100)")
    process = subprocess.Popen(
        [sys.executable, "-m", "dynx", "fix", "program.py"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell ignores it in the background
    )
    assert "runs program.py" in process.stderr.readline()
    assert process.stderr.readline() == "dynx fix: each run repeats what the program writes and sends\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors == "dynx: interrupted in the first run: no fix was tried\n"


@pytest.mark.parametrize("command", [["fix"], ["run", "--try"]])
def test_ranks_of_a_job_are_not_tried(tmp_path, command):
    write(tmp_path, LOGGED)
    refused = dynx(tmp_path, *command, "program.py", RANK="1", WORLD_SIZE="2")
    assert refused.returncode == 2
    assert "one rank of a distributed job cannot" in refused.stderr


def test_try_needs_a_program_that_can_run_again(tmp_path):
    found = dynx(tmp_path, "run", "--try", "-")
    assert found.returncode == 2
    assert "needs a program that can run again" in found.stderr
