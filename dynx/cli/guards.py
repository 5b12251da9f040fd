"""`dynx guards script.py::function`: what torch has compiled of a function when the program is over."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dynx.cli import program
from dynx.errors import DynxError, UsageError


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "guards",
        help="run a program and list what torch compiled of one function, with its guards",
        usage="dynx guards [--json] script.py::function [arguments of the program …]",
    )
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    parser.add_argument("target", metavar="script.py::function", help="a name in the script: train_step, Model.forward, model")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program and give the function that runs it, then lists."""
    script, _, name = arguments.target.rpartition("::")
    if not script:
        raise UsageError(f"{arguments.target} names no function\n  say which: dynx guards {arguments.target}::function")
    sys.argv = [script, *arguments.rest]
    load, module = program.load_script(script)

    def run() -> int:
        from dynx.session import watch

        sys.modules["__main__"] = module
        with watch():  # knows every line that asked for a guard
            try:
                exec(load(), module.__dict__)
            except SystemExit:
                pass
            except BaseException:
                sys.excepthook = program.without_our_frames(sys.excepthook)
                raise
            try:
                _show(_named(vars(module), name, script), as_json=arguments.json)
            except DynxError as error:
                print(f"dynx: {error}", file=sys.stderr)
                return 2
        return 0

    return run


def _named(names: Mapping[str, Any], name: str, script: str) -> Any:
    first, *rest = name.split(".")
    if first not in names:
        known = [each for each, value in names.items() if callable(value) and getattr(value, "__module__", "") == "__main__"]
        raise UsageError(f"{script} has no {first}\n  it has {', '.join(known) or 'no function of its own'}")
    found = names[first]
    for each in rest:
        if not hasattr(found, each):
            raise UsageError(f"{first} of {script} has no {each}\n  name what the script would write to call it")
        found = getattr(found, each)
    return found


def _show(target: Any, *, as_json: bool) -> None:
    from rich.console import Console

    from dynx.guards import inspect
    from dynx.report import record

    report = inspect(target)
    if as_json:
        print(report.to_json())
    else:
        Console().print(record(report))
