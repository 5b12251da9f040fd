"""The option `--try` of `dynx run`: try the advice in further runs of the program, and add the trials to its run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dynx.errors import UsageError

if TYPE_CHECKING:
    from dynx.fix import Program
    from dynx.records import Record, Run

BUDGET = 300.0  # seconds


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help=f"run the program again for each advice that is a setting or a mark, for {BUDGET:.0f} seconds at most, "
        "and show what helped; it writes and sends again what it writes and sends",
    )


def trials_of(arguments: argparse.Namespace) -> Callable[[Run, Path | None], Run]:
    """Return a function that adds the trials to a run, and to its file.

    Raises UsageError for a program that cannot run again, such as one on standard input.
    """
    from dynx.fix import Program

    if arguments.target == "-":
        raise UsageError("--try runs the program again, which standard input does not allow\n  write it to a file")
    program = Program(arguments.target, tuple(arguments.rest), arguments.option)

    def add(run: Run, saved: Path | None) -> Run:
        found = [finding for finding in run.findings if any(fix.kind != "rewrite" for fix in finding.fixes)]
        if not found:
            return run
        print(f"\ndynx: runs {program} again to try the advice, for {BUDGET:.0f} s at most", file=sys.stderr, flush=True)
        tried = replace(run, events=(*run.events, *_trials(program)))
        if saved is not None:
            tried.save(saved)
        return tried

    return add


def _trials(program: Program) -> list[Record]:
    from dynx.fix import Limits, Search, experiments, first_run, search

    limits = Limits(BUDGET)
    base = first_run(program, limits)
    if base.was_stopped:
        print(f"dynx: it did not end within {BUDGET:.0f} s: nothing was tried", file=sys.stderr)
        return []
    state = Search(program, limits, experiments, base)
    return list(search(state))
