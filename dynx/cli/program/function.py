"""Commands about one function of a program, `dynx guards` and `dynx memory`: run the program, then print a report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dynx.cli import program
from dynx.cli.command import Subparsers
from dynx.cli.program.target import FORMS, parse
from dynx.cli.program.tracebacks import hide_our_frames
from dynx.cli.screen import print_record
from dynx.errors import DynxError, UsageError

if TYPE_CHECKING:
    from dynx.records import Shown


class ReportOf(Protocol):
    """A function that returns the report about one function of a program, after the program has ended.

    `target` is the function; None if its dotted `name` cannot be resolved from the globals of the program. Raises DynxError if
    there is nothing to report.
    """

    def __call__(self, target: Any, name: str, program: str) -> Shown: ...


def add_command(commands: Subparsers, command: str, summary: str, act: Callable[[argparse.Namespace], object]) -> None:
    """Add a command whose arguments name a program and one of its functions."""
    usage = (
        f"dynx {command} [--json] file.py::function [arguments of the program …]\n"
        f"       dynx {command} [--json] module:function [arguments of the program …]\n"
        f"       dynx {command} [--json] --function NAME [-m | -c] program [arguments of the program …]"
    )
    parser = commands.add_parser(command, help=summary, usage=usage)
    parser.add_argument("--json", action="store_true", help="print the report as JSON; output of the program goes to stderr")
    parser.add_argument(
        "--function", metavar="NAME", help="the compiled function to report on, such as train_step, Model.forward or model"
    )
    program.add_to(parser)
    parser.set_defaults(act=act)


def watched(arguments: argparse.Namespace, command: str) -> Callable[[ReportOf], int]:
    """Load the program. Return a function that runs it under `dynx.watch()`, then prints what the passed `ReportOf` returns."""
    found = _named(arguments, command)
    load, module = program.prepare(
        found.program, arguments.rest, option=found.option, usage=f"dynx {command} path/to/file.py::function"
    )

    def run(report_of: ReportOf) -> int:
        from dynx.session import watch

        sys.modules["__main__"] = module
        source = program.loaded(load)
        if found.option == "-m":
            sys.argv[0] = module.__file__ or ""
        code: object = 0
        with watch():  # records every line that requested a guard
            try:
                # with --json, stdout holds the records only
                with redirect_stdout(sys.stderr) if arguments.json else nullcontext():
                    exec(source, module.__dict__)
            except SystemExit as error:
                code = error.code
            except BaseException:
                _print_report(report_of, module, found, as_json=arguments.json)
                hide_our_frames()
                raise
            own_code = _print_report(report_of, module, found, as_json=arguments.json)
        if code not in (None, 0):
            sys.exit(code)  # type: ignore[arg-type]
        return own_code

    return run


def _print_report(report_of: ReportOf, module: ModuleType, found: _Named, *, as_json: bool) -> int:
    first, *rest = found.function.split(".")
    target = vars(module).get(first)
    for attribute in rest:
        target = getattr(target, attribute, None)
    try:
        report = report_of(target, found.function, found.shown)
    except DynxError as error:
        print(f"dynx: {error}", file=sys.stderr)
        return 2
    print_record(report, as_json=as_json)
    return 0


class _Named(NamedTuple):
    program: str | None
    option: str  # `-m` or `-c`, as for `python`
    function: str
    shown: str  # what messages call the program


def _named(arguments: argparse.Namespace, command: str) -> _Named:
    """Return the program and the name of the function; raise UsageError if one of them is missing."""
    program, option = arguments.target, arguments.option
    if arguments.function:
        return _Named(
            program, option, arguments.function, program if program not in (None, "-") and not option else "the program"
        )
    if program is None:
        raise UsageError(f"no program to run\n  name {FORMS}, for example: dynx {command} train.py::function")
    if option == "-c":
        raise UsageError(f"-c needs the option --function\n  for example: dynx {command} --function step -c …")
    found = parse(program, f"dynx {command}")
    if option and not found.is_module:
        raise UsageError(f"{option} needs a module, but {found} names a file\n  leave out {option}: dynx {command} {found}")
    shown = "the program" if found.program == "-" else found.program
    return _Named(found.program, "-m" if found.is_module else "", found.function, shown)
