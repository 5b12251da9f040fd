"""`dynx guards script.py::function`: run a program, then print the cache entries and the guards of a function."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dynx.cli import program
from dynx.errors import DynxError, UsageError
from dynx.records import CacheReport

if TYPE_CHECKING:
    from dynx.cli.command import Subparsers


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "guards",
        help="run a program, then list the cache entries and guards of one function",
        usage="dynx guards [--json] script.py::function [arguments of the program …]\n"
        "       dynx guards [--json] --function NAME [-m | -c] program [arguments of the program …]",
    )
    parser.add_argument("--json", action="store_true", help="print the records as JSON; output of the program goes to stderr")
    parser.add_argument(
        "--function", metavar="NAME", help="a compiled function in the program: train_step, Model.forward, model"
    )
    program.add_to(parser)
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program, and return the function that runs it and then prints the cache entries."""
    target, name = _target(arguments)
    load, module = program.prepare(
        target, arguments.rest, option=arguments.option, usage="dynx guards path/to/file.py::function"
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
                _print_entries(module, name, script, as_json=arguments.json)
                sys.excepthook = program.without_our_frames(sys.excepthook)
                raise
            own_code = _print_entries(module, name, script, as_json=arguments.json)
        if code not in (None, 0):
            sys.exit(code)  # type: ignore[arg-type]
        return own_code

    return run


def _target(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """Return the program and the name of the function; raise UsageError if one of them is missing."""
    if arguments.function:
        return arguments.target, arguments.function
    target = arguments.target
    if target is None:
        raise UsageError("no program to run\n  for example: dynx guards script.py::function")
    if arguments.option:
        raise UsageError(f"no function for {arguments.option}\n  for example: dynx guards --function step {arguments.option} …")
    script, _, name = target.rpartition("::")
    if not script or not name:
        file, _, function = target.rstrip(":").partition(":")
        example = f"dynx guards {file}::{function or 'function'}"
        raise UsageError(f"the target {target} is not of the form script.py::function\n  for example: {example}")
    return script, name


def _print_entries(module: ModuleType, name: str, script: str, *, as_json: bool) -> int:
    """Print the cache entries of the function, and return the exit code."""
    from rich.console import Console

    from dynx.report import record

    try:
        report = _report_of(vars(module), name, script)
    except DynxError as error:
        print(f"dynx: {error}", file=sys.stderr)
        return 2
    if as_json:
        print(report.to_json())
    else:
        Console().print(record(report))
    return 0


def _report_of(names: Mapping[str, Any], name: str, script: str) -> CacheReport:
    """Inspect the function `name`: an expression in the script (`model.forward`), or a name as in reports (`Model.forward`)."""
    from dynx.guards import inspect
    from dynx.guards._cache.by_name import compiled_functions, inspect_code

    first, *rest = name.split(".")
    target = names.get(first)
    for attribute in rest:
        target = getattr(target, attribute, None)
    compiled = compiled_functions()
    if target is not None and (callable(target) or name not in compiled):
        return inspect(target)
    if name in compiled:
        return inspect_code(compiled[name])
    choices = f"compiled functions: {', '.join(compiled)}" if compiled else "the program compiled nothing"
    raise UsageError(f"{script} has no {name}\n  {choices}")
