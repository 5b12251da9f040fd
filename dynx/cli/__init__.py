"""The `dynx` command: `dynx run script.py` saves a run file; `dynx show`, `diff`, `trace` and `assert` read it."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TextIO, cast

from dynx.cli.arguments import Parser, misplaced, split
from dynx.cli.command import Command
from dynx.cli.screen import encodable
from dynx.errors import DynxError, DynxWarning
from dynx.records.codec import visible

__all__ = ["main"]

COMMANDS = (  # the modules of the commands, in the order of `dynx --help`
    "run",
    "run_file.show",
    "run_file.diff",
    "run_file.trace",
    "guards",
    "memory",
    "program.check",
    "program.fix",
    "pgo",
    "cache",
    "run_file.asserts",
    "rule",
    "doctor",
    "demo",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `dynx` command with the arguments `argv`.

    Commands such as `dynx run`, `dynx guards`, `dynx memory` and `dynx check` run the user's program in this process, and
    exceptions of the program propagate to the caller. The report of `dynx run` is printed when the interpreter exits.

    Args:
        argv: The arguments after `dynx`; those of the process by default.

    Returns:
        The exit code: 0 for success, 1 if a check failed, 2 for a usage error or a file that cannot be read, 3 if a file of
        `dynx assert` or `dynx diff` is damaged or was written by a newer dynx.
    """
    command_line = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    found = split(parser, command_line)
    arguments = parser.parse_args(found.own)
    arguments.rest = found.rest
    if (note := misplaced(found)) and not getattr(arguments, "trial", None):
        print(f"dynx: {note}", file=sys.stderr)
    try:
        result = _act(arguments)
    except BrokenPipeError:
        sys.stdout = None  # the reader of the pipe is gone; Python must not try to flush
        return 0
    except DynxError as error:
        print(f"dynx: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"dynx: {error.strerror or error}: {visible(str(error.filename))}", file=sys.stderr)
        return 2
    return result() if callable(result) else result


def _act(arguments: argparse.Namespace) -> int | Callable[[], int]:
    """Run the command and return its exit code. For a command that runs the user's program, return a function that does so."""
    with encodable(sys.stdout, sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("always", DynxWarning)
        warnings.showwarning = _show_warning
        return arguments.act(arguments)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning to stderr, without the file and line that issued it; replaces `warnings.showwarning`."""
    print(f"dynx: {message}", file=sys.stderr)


def _parser() -> Parser:
    from dynx import __version__

    parser = Parser(prog="dynx", description="Show what torch.compile does with your code.")
    parser.add_argument("--version", action="version", version=f"dynx {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        cast("Command", import_module(f"dynx.cli.{name}")).add_to(commands)
    return parser
