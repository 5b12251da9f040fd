"""The interface of the command modules of this package: one module for each command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # argparse has no public name for it


class Command(Protocol):
    """A command: it adds its parser, which sets `act` as the function to call."""

    def add_to(self, commands: Subparsers) -> None:
        """Add the parser of this command."""

    def act(self, arguments: argparse.Namespace) -> int | Callable[[], int]:
        """Run the command; return its exit code, or a function that runs the user's program and returns it."""
