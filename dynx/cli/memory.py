"""`dynx memory file.py::function`: run a program, then print the tensors that a function saved for backward."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from dynx.cli.command import Subparsers
from dynx.cli.program import function


def add_to(commands: Subparsers) -> None:
    function.add_command(commands, "memory", "run a program, then list the tensors that one function saved for backward", act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program, and return the function that runs it and then prints the saved tensors."""
    run = function.watched(arguments, "memory")

    def run_observed() -> int:
        from dynx.saved._measure import by_function

        with by_function.observed() as compiled:
            return run(partial(by_function.report_of, compiled))

    return run_observed
