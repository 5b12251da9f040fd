"""`dynx guards file.py::function`: run a program, then print the cache entries and the guards of a function."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dynx.cli.program import function
from dynx.errors import DynxError, UsageError
from dynx.records import CacheReport

if TYPE_CHECKING:
    from dynx.cli.command import Subparsers


def add_to(commands: Subparsers) -> None:
    function.add_command(commands, "guards", "run a program, then list the cache entries and guards of one function", act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program, and return the function that runs it and then prints the cache entries."""
    return function.watched(arguments, "guards", _print_entries)


def _print_entries(module: ModuleType, name: str, script: str, *, as_json: bool) -> int:
    """Print the cache entries of the function, and return the exit code."""
    from dynx.cli.screen import show

    try:
        report = _report_of(vars(module), name, script)
    except DynxError as error:
        print(f"dynx: {error}", file=sys.stderr)
        return 2
    if as_json:
        print(report.to_json())
    else:
        show(report)
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
