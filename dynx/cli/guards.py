"""`dynx guards script.py::function`: what torch has compiled of a function when the program is over."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from types import ModuleType
from typing import Any

from dynx.cli import program
from dynx.errors import DynxError, UsageError
from dynx.records import CacheReport


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "guards",
        help="run a program and list what torch compiled of one function, with its guards",
        usage="dynx guards [--json] script.py::function [arguments of the program …]",
    )
    parser.add_argument("--json", action="store_true", help="print the records as JSON; what the program prints goes to stderr")
    parser.add_argument("target", metavar="script.py::function", help="a name in the script: train_step, Model.forward, model")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program and give the function that runs it, then lists."""
    script, _, name = arguments.target.rpartition("::")
    if not script or not name:
        file, _, function = arguments.target.rstrip(":").partition(":")
        raise UsageError(f"{arguments.target} names no function\n  say which: dynx guards {file}::{function or 'function'}")
    sys.argv = [script, *arguments.rest]
    load, module = program.load_script(script, "dynx guards path/to/file.py::function")

    def run() -> int:
        from dynx.session import watch

        sys.modules["__main__"] = module
        code: object = 0
        with watch():  # knows every line that asked for a guard
            try:
                # what the program prints must not stand between the records
                with redirect_stdout(sys.stderr) if arguments.json else nullcontext():
                    exec(load(), module.__dict__)
            except SystemExit as ended:
                code = ended.code
            except BaseException:
                _tell(module, name, script, as_json=arguments.json)
                sys.excepthook = program.without_our_frames(sys.excepthook)
                raise
            told = _tell(module, name, script, as_json=arguments.json)
        if code not in (None, 0):
            sys.exit(code)  # type: ignore[arg-type]
        return told

    return run


def _tell(module: ModuleType, name: str, script: str, *, as_json: bool) -> int:
    """Show what was compiled; gives the exit code."""
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
    """Find a function by what the script would write, or by the name that reports give it."""
    from dynx.guards import inspect
    from dynx.guards._cache.by_name import compiled_functions, inspect_code

    first, *rest = name.split(".")
    found = names.get(first)
    for each in rest:
        found = getattr(found, each, None)
    compiled = compiled_functions()
    if found is not None and (callable(found) or name not in compiled):
        return inspect(found)
    if name in compiled:
        return inspect_code(compiled[name])
    told = f"compiled were {', '.join(compiled)}" if compiled else "nothing was compiled"
    raise UsageError(f"{script} has no {name}\n  {told}")
