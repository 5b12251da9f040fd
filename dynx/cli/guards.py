"""`dynx guards file.py::function`: run a program, then print the cache entries and the guards of a function."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from dynx.cli.command import Subparsers
from dynx.cli.program import function


def add_to(commands: Subparsers) -> None:
    function.add_command(commands, "guards", "run a program, then list the cache entries and guards of one function", act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program, and return the function that runs it and then prints the cache entries."""
    run = function.watched(arguments, "guards")

    def run_and_inspect() -> int:
        from dynx.guards._cache.inspect import inspect_named

        return run(inspect_named)

    return run_and_inspect
