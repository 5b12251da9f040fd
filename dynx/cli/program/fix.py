"""`dynx fix program args…`: try the fixes of findings in further runs of the program, and print those that help as a diff."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from dynx.cli import program
from dynx.cli.command import Subparsers
from dynx.cli.numbers import number
from dynx.cli.screen import print_record
from dynx.errors import UsageError

if TYPE_CHECKING:
    from dynx.fix import Program
    from dynx.records.trial import Trial

_EPILOG = """\
The program runs once as it is, then once more for each fix that is tried, each time in a new process and without input. Every
run repeats everything that the program writes and sends. Only --apply changes its source files.
Exit code: 0 if no finding remains, 1 if a finding remains, 2 if the program cannot be run or tried.
"""


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "fix",
        help="try fixes in further runs of a program, and print those that help as a diff",
        usage="dynx fix [--apply [--force]] [--budget SECONDS] [--result NAME] [--tolerance X] [--allow-writes] [--json] "
        "[-m | -c] program [arguments …]",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--apply", action="store_true", help="write the fixes that help into the source files of the program")
    parser.add_argument("--force", action="store_true", help="with --apply: also write into files with uncommitted changes")
    parser.add_argument(
        "--budget",
        type=number("a number of seconds", lambda seconds: seconds > 0),
        default=600.0,
        metavar="SECONDS",
        help="seconds for all runs together (default: 600)",
    )
    parser.add_argument(
        "--result",
        action="append",
        default=[],
        metavar="NAME",
        help="compare this global variable at the end of each run, instead of the program's output; may be repeated",
    )
    parser.add_argument(
        "--tolerance",
        type=number("a tolerance, such as 1e-4", lambda tolerance: 0 <= tolerance < 1),
        default=1e-4,
        metavar="X",
        help="relative tolerance when runs with and without a fix are compared by output or --result (default: 1e-4)",
    )
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="accept a program that writes files into its folder, although every run writes them again",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    program.add_to(parser)
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from dynx import fix

    target = program_of(arguments, "dynx fix")
    limits = fix.Limits(arguments.budget, fix.Tolerance(arguments.tolerance), tuple(arguments.result))
    say = _say if not arguments.json else lambda text: None
    _say(f"runs {target} once as it is, then again for each fix, for {arguments.budget:.0f} s at most")
    _say("each run repeats what the program writes and sends")
    report = fix.run(
        target,
        limits,
        on_base=lambda events, findings, seconds: say(f"as it is: {events}; findings: {findings}, in {seconds:.0f} s"),
        on_trial=lambda trial: say(_line(trial)),
        allow_writes=arguments.allow_writes,
    )
    print_record(report, as_json=arguments.json)
    if report.diff and not arguments.json:
        print(report.diff, end="")
    if arguments.apply and report.diff:
        for file in fix.apply(report, force=arguments.force):
            _say(f"wrote {os.path.relpath(file)}")
    return 1 if report.remaining else 0


def program_of(arguments: argparse.Namespace, command: str) -> Program:
    """Return the program that a command runs repeatedly. Raises UsageError if that is impossible, as for standard input."""
    from dynx.fix import Program

    if arguments.target in (None, "-"):
        raise UsageError(f"{command} needs a program that can run again: a script, -m module or -c code")
    program = Program(arguments.target, tuple(arguments.rest), arguments.option)
    program.check()
    return program


def _say(text: str) -> None:
    print(f"dynx fix: {text}", file=sys.stderr, flush=True)


def _line(trial: Trial) -> str:
    verdict = "kept: " if trial.is_kept else ""
    return f"{trial.rule} {trial.location.own}: {trial.fix.code}: {verdict}{trial.result}"
