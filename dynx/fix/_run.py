"""`run` and `apply`: try the fixes of a program, and write those that help into its files."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

from dynx._rewrites.source_file import write
from dynx.errors import UsageError
from dynx.fix._judge import events_of, not_comparable
from dynx.fix._program import Program, Result
from dynx.fix._propose import experiments, rewritten
from dynx.fix._prune import prune
from dynx.fix._report import report_of
from dynx.fix._search import Limits, Search, first_run, search
from dynx.records.fix_report import FixReport
from dynx.records.trial import Events, Trial

_MOST_FILES = 20_000  # that are looked at
_OF_TOOLS = {"__pycache__", ".git", ".dynx", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def run(
    program: Program | str,
    limits: Limits | None = None,
    *,
    on_base: Callable[[Events, int, float], None] = lambda events, findings, seconds: None,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    in_files: bool = True,
    allow_writes: bool = False,
) -> FixReport:
    """Run a program as it is, then again with each fix of its findings, and keep the fixes that help and change no output.

    Each run is a separate process with empty stdin, and has all side effects of the program, such as writing files. The
    source files are not changed; `apply` changes them.

    Args:
        program: The program to run; a str is the path of a script without arguments.
        limits: The time budget of all runs, 600 seconds by default, and how results are compared.
        on_base: Called after the run without a fix, with its costs, the number of its findings, and its duration in seconds.
        on_trial: Called after each trial.
        in_files: Whether to try fixes as changes of the program's source files, as in the diff of the report. If False, try
            only fixes that need no such change, as `dynx run --try` does.
        allow_writes: Whether to try fixes for a program that writes into its folder or the working directory.

    Returns:
        The trials, the findings before and after, and the fixes that are kept, as a diff. After Ctrl-C, the results so far.

    Raises:
        UsageError: The program cannot be run again, exceeds the time budget, compiles nothing, or has no results to compare.

    Example:
        >>> from dynx import fix
        >>> fix.run("no_such_program.py")
        Traceback (most recent call last):
        dynx.errors.UsageError: the file no_such_program.py does not exist
          for example: dynx fix train.py
    """
    program = Program(program) if isinstance(program, str) else program
    limits = limits or Limits()
    program.check()
    propose = rewritten(program) if in_files else experiments
    files, started, began = _files(program), time.monotonic(), time.time()
    try:
        base = first_run(program, limits)
    except KeyboardInterrupt:
        raise UsageError("interrupted in the first run: no fix was tried") from None
    now = _files(program)
    new = tuple(sorted(path for path in files.keys() | now.keys() if files.get(path) != now.get(path)))
    _check(base, limits, () if allow_writes else new)
    state = Search(program, limits, propose, base, started=started)
    on_base(events_of(base.run), len(base.run.findings), base.seconds)
    notes = [f"the program fails as it is: {base.last_line}"] if base.exit_code else []
    notes += [f"each run wrote {len(new)} files"] if new else []
    try:
        for trial in chain(search(state), prune(state) if in_files else ()):
            on_trial(trial)
    except KeyboardInterrupt:
        notes.append("interrupted: not all fixes were tried")
    return report_of(state, tuple(notes), began)


def apply(report: FixReport, *, force: bool = False) -> tuple[str, ...]:
    """Write the fixes that a report keeps into the program's source files, and return the paths of these files.

    Args:
        report: The result of `run` in this process.
        force: Whether to write even into files with changes that are not committed to git.

    Raises:
        UsageError: A file was changed since the first run, or has uncommitted changes and `force` is False. No file was
            written.
    """
    edited = [file for file in report.sources if os.stat(file).st_mtime > report.began]
    if edited:
        name = os.path.relpath(edited[0])
        raise UsageError(f"{name} was changed while dynx tried fixes: nothing was written\n  run dynx fix again")
    dirty = [file for file in report.sources if not force and _is_dirty(Path(file))]
    if dirty:
        raise UsageError(
            f"{os.path.relpath(dirty[0])} has changes that are not committed: nothing was written\n"
            "  commit them first, apply the diff above, or write into the file anyway: --force, in Python force=True"
        )
    for file, text in report.sources.items():
        write(file, text)
    return tuple(report.sources)


def _files(program: Program) -> Mapping[str, tuple[int, int]]:
    """Return size and modification time of each file in the working directory and the folder of the program, by path.

    Files that differ after a run were written by the program, which would write them again in each trial.
    """
    found: dict[str, tuple[int, int]] = {}
    for folder in dict.fromkeys((Path.cwd(), *([Path(program.target).absolute().parent] if not program.option else []))):
        for place, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if name not in _OF_TOOLS]
            for path in (os.path.join(place, name) for name in names):
                if len(found) >= _MOST_FILES:
                    return found
                with suppress(OSError):
                    state = os.stat(path)
                    found[path] = state.st_size, state.st_mtime_ns
    return found


def _check(base: Result, limits: Limits, new: tuple[str, ...]) -> None:
    """Raise UsageError if the first run (`base`) shows that fixes cannot be tried; `new` are the files that it wrote."""
    if base.was_stopped:
        raise UsageError(
            f"the program did not end within {limits.budget:.0f} s, and was stopped\n"
            "  give it more seconds with --budget, in Python Limits(budget=...), or make it end sooner"
        )
    if new:
        names = ", ".join(os.path.relpath(path) for path in new[:3]) + (", …" if len(new) > 3 else "")
        raise UsageError(
            f"the program writes files ({names}), and each trial of a fix would write them again: no fix was tried\n"
            "  if writing them again does no harm, pass --allow-writes, in Python allow_writes=True"
        )
    if not base.run.compiles and not base.run.findings:
        reason = f": {base.last_line}" if base.exit_code else ""
        raise UsageError(f"the program compiled nothing{reason}\n  dynx run shows what it does")
    if limits.values and (why := base.no_values or not_comparable(base)):
        raise UsageError(
            f"--result {' '.join(limits.values)} cannot be compared: {why}\n"
            "  name global variables that are tensors, numbers or lists of them"
        )


def _is_dirty(file: Path) -> bool:
    """Return whether a file has changes that are not committed to git; False outside a repository or without git."""
    command = ["git", "-C", str(file.parent), "status", "--porcelain", "--ignored", "--", file.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0 and bool(done.stdout.strip())
