"""The interface of a module that implements a `dynx` command, such as `dynx show`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from dynx.cli.arguments import Parser

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # argparse has no public name for it


class Command(Protocol):
    """A module that implements a `dynx` command: `add_to` adds its argument parser, `act` runs the command."""

    def add_to(self, commands: Subparsers) -> None:
        """Add the argument parser of this command to `commands`. The parser sets `arguments.act` to this command's `act`."""

    def act(self, arguments: argparse.Namespace) -> int | Callable[[], int]:
        """Run the command; return the exit code, or a function that runs the user's program and returns the exit code."""
