"""Commands about one function of a program, `dynx guards` and `dynx memory`: run the program, then print what was found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from dynx.cli import program
from dynx.errors import UsageError

if TYPE_CHECKING:
    from dynx.cli.command import Subparsers


class Print(Protocol):
    """Prints what was found about the function `name` of a program that has ended; returns the exit code."""

    def __call__(self, module: ModuleType, name: str, script: str, *, as_json: bool) -> int: ...


def add_command(commands: Subparsers, command: str, summary: str, act: Callable[[argparse.Namespace], object]) -> None:
    """Add a command whose arguments name a program and one of its functions."""
    usage = (
        f"dynx {command} [--json] script.py::function [arguments of the program …]\n"
        f"       dynx {command} [--json] --function NAME [-m | -c] program [arguments of the program …]"
    )
    parser = commands.add_parser(command, help=summary, usage=usage)
    parser.add_argument("--json", action="store_true", help="print the records as JSON; output of the program goes to stderr")
    parser.add_argument(
        "--function", metavar="NAME", help="a compiled function in the program: train_step, Model.forward, model"
    )
    program.add_to(parser)
    parser.set_defaults(act=act)


def watched(arguments: argparse.Namespace, command: str, print_found: Print) -> Callable[[], int]:
    """Load the program, and return the function that runs it under `dynx.watch()` and then calls `print_found`."""
    target, name = _target(arguments, command)
    load, module = program.prepare(
        target, arguments.rest, option=arguments.option, usage=f"dynx {command} path/to/file.py::function"
    )
    script = target if target is not None and target != "-" and not arguments.option else "the program"

    def run() -> int:
        from dynx.session import watch

        sys.modules["__main__"] = module
        if arguments.option == "-m":
            sys.argv[0] = module.__file__ or ""
        code: object = 0
        with watch():  # records every line that requested a guard
            try:
                # with --json, stdout holds the records only
                with redirect_stdout(sys.stderr) if arguments.json else nullcontext():
                    exec(load(), module.__dict__)
            except SystemExit as error:
                code = error.code
            except BaseException:
                print_found(module, name, script, as_json=arguments.json)
                sys.excepthook = program.without_our_frames(sys.excepthook)
                raise
            own_code = print_found(module, name, script, as_json=arguments.json)
        if code not in (None, 0):
            sys.exit(code)  # type: ignore[arg-type]
        return own_code

    return run


def _target(arguments: argparse.Namespace, command: str) -> tuple[str | None, str]:
    """Return the program and the name of the function; raise UsageError if one of them is missing."""
    if arguments.function:
        return arguments.target, arguments.function
    target = arguments.target
    if target is None:
        raise UsageError(f"no program to run\n  for example: dynx {command} script.py::function")
    if arguments.option:
        raise UsageError(
            f"no function for {arguments.option}\n  for example: dynx {command} --function step {arguments.option} …"
        )
    script, _, name = target.rpartition("::")
    if not script or not name:
        file, _, function = target.rstrip(":").partition(":")
        example = f"dynx {command} {file}::{function or 'function'}"
        raise UsageError(f"the target {target} is not of the form script.py::function\n  for example: {example}")
    return script, name
