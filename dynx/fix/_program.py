"""`Program`: a script, module or code with arguments; `run`: run a program with a plan in a separate process."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynx._run import Run
from dynx._runfile.rank import rank_in_environment
from dynx.errors import DynxError, DynxWarning, UsageError
from dynx.fix._plan import Plan, values_file

_MOST = 1 << 26  # bytes of output that are compared
_LAST_LINES = 40  # lines of stderr that are kept
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Violation|Exit|Interrupt|Unsupported|Failed|Warning)\b")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")  # of an object, different in each run
_HINT = re.compile(r"\s*Set TORCHDYNAMO_VERBOSE=1 ")  # the last lines of torch's messages, which say nothing about the error


@dataclass(frozen=True, slots=True)
class Program:
    """A program as it is passed to `python`: a script, `-m` and a module, or `-c` and code, with arguments."""

    target: str  # a script, module or code
    arguments: tuple[str, ...] = ()
    option: str = ""  # "-m" or "-c"

    def check(self) -> None:
        """Raise UsageError if the script does not exist, or if this process is one rank of a distributed job."""
        if rank_in_environment() is not None:
            raise UsageError(
                "trying fixes runs the program several times, which one rank of a distributed job cannot do\n"
                "  start the program in one process, without torchrun or mpirun"
            )
        if not self.option and not os.path.exists(self.target):
            raise UsageError(f"the file {self.target} does not exist\n  for example: dynx fix train.py")

    def __str__(self) -> str:
        return shlex.join([*filter(None, [self.option]), self.target, *self.arguments])


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run of the program: output, exit code, seconds, and records of compilations."""

    plan: Plan
    output: str
    errors: str  # the last lines of stderr
    exit_code: int | None  # None if it was stopped
    seconds: float
    run: Run
    values: Any = None  # of the requested global variables, by name
    no_values: str = ""  # why `values` is missing

    @property
    def was_stopped(self) -> bool:
        """Whether the program was stopped because it took too long."""
        return self.exit_code is None

    @property
    def last_line(self) -> str:
        """The exception that ended the program, or the last line that it printed to stderr."""
        errors = _ADDRESS.sub("", self.errors)
        lines = [line.strip() for line in errors.splitlines() if line.strip() and not _HINT.match(line)]
        said = [line.removeprefix("dynx: ") for line in lines if line.startswith("dynx: ")]
        raised = [line for line in lines if _EXCEPTION.match(line)]
        place = re.findall(r'File "(.+?)", line (\d+)', errors)
        if raised and raised[-1].startswith("SyntaxError") and place:
            return f"{raised[-1]} at {place[-1][0]}:{place[-1][1]}"
        return (raised or said or lines or [f"exit code {self.exit_code}"])[-1]


def run(program: Program, plan: Plan, *, timeout: float, what_if: float = 0.0) -> Result:
    """Run a program with the changes in `plan` in a separate process; stop it and its child processes after `timeout` seconds.

    `what_if` is the share of the compile time in which fixes are tried during the run.

    The program has an empty stdin and begins with empty compile caches on disk, so that the times of runs can be compared.
    """
    with tempfile.TemporaryDirectory(prefix="dynx-fix-") as folder:
        place = Path(folder)
        plan.write(place / "plan.json")
        command = [sys.executable, "-m", "dynx", "run", "--trial", str(place / "plan.json"), "--out", str(place / "run.dynx")]
        command += ["--what-if", str(what_if)]
        command += [*filter(None, [program.option]), *(["--"] if program.option == "-c" else []), program.target]
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(place / "cache")}
        begin = time.monotonic()
        with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
            process = subprocess.Popen(
                [*command, *program.arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )
            exit_code = _wait(process, timeout)
        seconds = time.monotonic() - begin
        output, errors = (_text(place / name) for name in ("out", "err"))
        values, no_values = _values(plan, place / "plan.json")
        last = "\n".join(errors.splitlines()[-_LAST_LINES:])
        return Result(plan, output, last, exit_code, seconds, _load(place / "run.dynx"), values, no_values)


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:  # also after Ctrl-C; a program may leave children behind
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(path: Path) -> str:
    with path.open("rb") as opened:
        return opened.read(_MOST).decode(errors="replace")


def _load(path: Path) -> Run:
    """Return the run that the process of the program recorded; an empty run if it wrote no run file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DynxWarning)  # a program that was stopped leaves half a line
            return Run.load(path)
    except (DynxError, OSError):
        return Run()


def _values(plan: Plan, path: Path) -> tuple[Any, str]:
    if not plan.values:
        return None, ""
    file = values_file(path)
    error = file.with_suffix(".error")
    if error.exists():
        return None, error.read_text()
    if not file.exists():
        return None, "the program ended before they could be saved"
    import torch

    try:
        values = torch.load(file, weights_only=False)  # written by the process that this one has started
    except Exception as error:  # noqa: BLE001 - whatever a value of the user raises when it is unpickled outside of its program
        return None, f"{type(error).__name__}: {error}"
    missing = [name for name in plan.values if name not in values]
    return values, f"the program has no global variable {missing[0]}" if missing else ""
