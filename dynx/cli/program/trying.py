"""The option `--try` of `dynx run`: try fixes in further runs of the program (trials), and add the results to the run file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dynx.cli.program.fix import program_of
from dynx.errors import UsageError

if TYPE_CHECKING:
    from dynx._run import Run
    from dynx.fix import Program
    from dynx.records import Record

BUDGET = 300.0  # seconds


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the option `--try`."""
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="run the program again, once with each fix that changes no file, and show which fixes helped; "
        f"these runs take at most {BUDGET:.0f} seconds in total, and each repeats what the program writes and sends",
    )


def trials_of(arguments: argparse.Namespace) -> Callable[[Run, Path | None], Run]:
    """Return a function that tries the fixes of a run's findings in further runs, and returns the run with their results.

    With a path, the function saves the new run there. Raises UsageError if the program cannot run again, as from stdin.
    """
    program = program_of(arguments, "dynx run --try")

    def add(run: Run, saved: Path | None) -> Run:
        if not any(fix.kind != "rewrite" for finding in run.findings for fix in finding.fixes):
            return run
        limits = f"for {BUDGET:.0f} s at most; each run repeats what the program writes and sends"
        print(f"\ndynx: runs {program} again to try the advice, {limits}", file=sys.stderr, flush=True)
        tried = replace(run, events=(*run.events, *_trials(program)))
        if saved is not None:
            tried.save(saved)
        return tried

    return add


def _trials(program: Program) -> list[Record]:
    from dynx import fix

    trials: list[Record] = []
    try:
        report = fix.run(program, fix.Limits(BUDGET), on_trial=trials.append, in_files=False, allow_writes=True)
        for note in report.notes:
            print(f"dynx: {note}", file=sys.stderr)
    except UsageError as error:
        reason = str(error).partition("\n")[0]  # the next step names options that this command does not have
        print(f"dynx: nothing was tried: {reason}", file=sys.stderr)
    return trials
