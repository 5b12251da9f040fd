"""`dynx check module:function`: compare a compiled function with eager code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dynx.errors import UsageError

if TYPE_CHECKING:
    from dynx.cli.command import Subparsers

_EPILOG = """\
The input factory is called without arguments and returns a list with the arguments of each call: a tuple of positional
arguments, or a single one. Without it, `inputs` of the same module is called if there is one.
Exit code: 0 if both do the same, 1 if something differs or nothing was compiled, 2 for a usage error.
"""


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "check",
        help="call a function eagerly and compiled, and list everything that differs",
        usage="dynx check [--json] [--inputs FACTORY] [--calls N] [--backend NAME] [--isolate fork] [--bisect] module:function",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="module:function", help="an importable module, and a function or module in it")
    parser.add_argument("--inputs", metavar="FACTORY", help="a function that returns the arguments of each call: make_inputs")
    parser.add_argument("--calls", type=int, default=2, metavar="N", help="calls with each of them (default: 2)")
    parser.add_argument("--backend", metavar="NAME", help="the backend of torch.compile (default: eager)")
    parser.add_argument(
        "--isolate",
        choices=("copy", "fork"),
        default="copy",
        help="run in copies of all objects, or also in forked processes (default: copy)",
    )
    parser.add_argument("--bisect", action="store_true", help="find the first node of a graph that makes a difference")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Return the function that imports the user's module and checks the function, so that errors of the module pass through."""

    def run() -> int:
        from dynx.cli.screen import show
        from dynx.effects import check

        try:
            module, fn = _load(arguments.target)
            report = check(
                fn,
                inputs=_inputs(module, arguments.inputs, arguments.target),
                calls=arguments.calls,
                backend=arguments.backend,
                isolate=arguments.isolate,
                bisect=arguments.bisect,
            )
        except UsageError as error:
            print(f"dynx: {error}", file=sys.stderr)
            return 2
        except Exception:  # noqa: BLE001 - of the user's module or input factory; 1 would say that something differs
            traceback.print_exc()
            return 2
        if arguments.json:
            print(report.to_json())
        else:
            show(report)
        return 0 if report.ok else 1

    return run


def _load(target: str) -> tuple[Any, Any]:
    """Import a module from the current folder or the installed ones, and return it with the function that the target names."""
    name, colon, function = target.partition(":")
    if not (name and colon and function) or "/" in name or name.endswith(".py"):
        raise UsageError(f"{target} is no module:function\n  run dynx check package.module:train_step")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UsageError(f"there is no module {name} here or among the installed ones\n  run it where the module is") from None
    return module, _attribute(module, function)


def _attribute(module: Any, path: str) -> Any:
    value = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise UsageError(f"{module.__name__} has no {path}\n  name a function or a module in it") from None
    return value


def _inputs(module: Any, factory: str | None, target: str) -> list[Any]:
    if factory is None and not callable(getattr(module, "inputs", None)):
        raise UsageError(
            f"there are no arguments for {target}\n  write a function that returns a list of them, and name it with --inputs"
        )
    make = _attribute(module, factory or "inputs")
    made = make() if callable(make) else make
    if not isinstance(made, (list, tuple)):
        raise UsageError(f"{factory or 'inputs'} returned no list\n  return a list with the arguments of each call")
    return list(made)
