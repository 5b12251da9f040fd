"""`dynx fix program args…`: try the advice of `dynx run` in further runs of the program, and print what helps as a diff."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from dynx.cli import program
from dynx.cli.numbers import number
from dynx.errors import UsageError

if TYPE_CHECKING:
    from dynx.cli.command import Subparsers
    from dynx.fix import Program, Result, Search
    from dynx.records.fix_report import FixReport
    from dynx.records.trial import Trial

_EPILOG = """\
The program runs once as it is, then once more for each fix that is tried, in processes of its own and without input: it writes
and sends again what it writes and sends. Only --apply changes files.
Exit code: 0 if no finding is left, 1 if one is, 2 if the program cannot be run or tried.
"""


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "fix",
        help="try the advice in further runs of a program, and print what helps as a diff",
        usage="dynx fix [--apply [--force]] [--budget SECONDS] [--result NAME] [--tolerance X] [--allow-writes] [--json] "
        "[-m | -c] program [arguments …]",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--apply", action="store_true", help="write the fixes that help into the files")
    parser.add_argument("--force", action="store_true", help="with --apply: also into files with changes that git has not")
    parser.add_argument(
        "--budget",
        type=number("a number of seconds", lambda seconds: seconds > 0),
        default=600.0,
        metavar="SECONDS",
        help="for all runs together (default: 600)",
    )
    parser.add_argument(
        "--result",
        action="append",
        default=[],
        metavar="NAME",
        help="compare this global variable of the program at its end, instead of what it prints; may be repeated",
    )
    parser.add_argument(
        "--tolerance",
        type=number("a tolerance, such as 1e-4", lambda tolerance: 0 <= tolerance < 1),
        default=1e-4,
        metavar="X",
        help="relative, between numbers (default: 1e-4)",
    )
    parser.add_argument(
        "--allow-writes", action="store_true", help="also if the program writes into its folder, which each run does again"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    program.add_to(parser)
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from dynx.fix import Limits, Search, Tolerance, first_run, prune, report_of, rewritten, search, snapshot, written

    target = program_of(arguments, "dynx fix")
    limits = Limits(arguments.budget, Tolerance(arguments.tolerance), tuple(arguments.result))
    propose = rewritten(target)
    say = _say if not arguments.json else lambda text: None
    _say(f"runs {target} once as it is, then again for each fix, for {arguments.budget:.0f} s at most")
    files, started, began = snapshot(target), time.monotonic(), time.time()
    try:
        base = first_run(target, limits)
    except KeyboardInterrupt:
        raise UsageError("interrupted in the first run: nothing was tried") from None
    new = written(files, snapshot(target))
    _check(base, new, arguments)
    state = Search(target, limits, propose, base, started=started)
    say(f"as it is: {_events(state)}; findings: {len(base.run.findings)}, in {base.seconds:.0f} s")
    notes = _notes(base, new)
    try:
        for trial in chain(search(state), prune(state)):
            say(_line(trial))
    except KeyboardInterrupt:
        notes = (*notes, "interrupted: not all fixes were tried")
    report = report_of(state, notes)
    _print(report, as_json=arguments.json)
    if arguments.apply and report.diff:
        _apply(state, began, force=arguments.force)
    return 1 if report.remaining else 0


def program_of(arguments: argparse.Namespace, command: str) -> Program:
    """Return the program that a command has to run again. Raises UsageError for one that cannot."""
    from dynx._runfile.rank import rank_in_environment
    from dynx.fix import Program

    if arguments.target in (None, "-"):
        raise UsageError(f"{command} needs a program that can run again: a script, -m module or -c code")
    if rank_in_environment() is not None:
        raise UsageError(
            f"{command} runs the program again, which one rank of a distributed job cannot\n  run it in one process"
        )
    if not arguments.option and not os.path.exists(arguments.target):
        raise UsageError(f"the file {arguments.target} does not exist\n  for example: {command} train.py")
    return Program(arguments.target, tuple(arguments.rest), arguments.option)


def _say(text: str) -> None:
    print(f"dynx fix: {text}", file=sys.stderr, flush=True)


def _check(base: Result, new: tuple[str, ...], arguments: argparse.Namespace) -> None:
    """Raise UsageError if the program cannot be tried, with what the user can do."""
    from dynx.fix import not_comparable

    if base.was_stopped:
        raise UsageError(
            f"the program did not end within {arguments.budget:.0f} s, and was stopped\n  raise --budget, or let it end sooner"
        )
    if new and not arguments.allow_writes:
        names = ", ".join(os.path.relpath(path) for path in new[:3]) + (", …" if len(new) > 3 else "")
        raise UsageError(
            f"the program writes {names}, and would again in each trial; it ran once, and dynx changed nothing\n"
            "  pass --allow-writes if that does no harm"
        )
    if not base.run.compiles and not base.run.findings:
        reason = f": {base.last_line}" if base.exit_code else ""
        raise UsageError(f"the program compiled nothing{reason}\n  dynx run shows what it does")
    if arguments.result and (why := base.no_values or not_comparable(base)):
        raise UsageError(
            f"--result {' '.join(arguments.result)} cannot be compared: {why}\n  name tensors, numbers or lists of them"
        )


def _events(state: Search) -> str:
    from dynx.fix import events_of

    return str(events_of(state.base.run))


def _line(trial: Trial) -> str:
    verdict = "kept: " if trial.is_kept else ""
    return f"{trial.rule} {trial.location.own}: {trial.fix.code}: {verdict}{trial.result}"


def _notes(base: Result, new: tuple[str, ...]) -> tuple[str, ...]:
    notes = []
    if base.exit_code:
        notes.append(f"the program fails as it is: {base.last_line}")
    if new:
        notes.append(f"each run wrote {len(new)} files")
    return tuple(notes)


def _print(report: FixReport, *, as_json: bool) -> None:
    if as_json:
        print(report.to_json())
        return
    from dynx.cli.screen import show

    show(report)
    if report.diff:
        print(report.diff, end="")


def _apply(state: Search, began: float, *, force: bool) -> None:
    """Write the changed files, unless git has not seen their present text, or they were edited since the first run began."""
    from dynx.fix import write

    sources = state.base.plan.sources
    edited = [file for file in sources if os.stat(file).st_mtime > began]
    if edited:
        raise UsageError(
            f"{os.path.relpath(edited[0])} was changed while the program was tried: nothing was written\n  run dynx fix again"
        )
    dirty = [file for file in sources if not force and _is_dirty(Path(file))]
    if dirty:
        raise UsageError(
            f"{os.path.relpath(dirty[0])} has changes that are not committed: nothing was written\n"
            "  commit them first, pass --force, or apply the diff above"
        )
    for file, text in sources.items():
        write(file, text)
        _say(f"wrote {os.path.relpath(file)}")


def _is_dirty(file: Path) -> bool:
    """Return whether git would not restore the present text of a file; False outside of a repository."""
    command = ["git", "-C", str(file.parent), "status", "--porcelain", "--ignored", "--", file.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0 and bool(done.stdout.strip())
