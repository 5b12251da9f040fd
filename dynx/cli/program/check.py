"""`dynx check file.py::function`: compare a compiled function with eager code."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dynx.cli.command import Subparsers
from dynx.cli.program import target
from dynx.cli.program.tracebacks import of_program
from dynx.cli.screen import print_record
from dynx.errors import UsageError

_EPILOG = """\
The input factory is called without arguments and returns a list with the arguments of each call: a tuple of positional
arguments, or a single argument. Without --inputs, the function `inputs` of the same module is called if it exists.
Exit code: 0 if eager and compiled code do the same; 1 if something differs, if nothing was compiled, or if both used the same
objects; 2 for a usage error, or if the module or the input factory raises an exception.
"""


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "check",
        help="call a function eagerly and compiled, and list everything that differs",
        usage="dynx check [--json] [--inputs FACTORY] [--calls N] [--change FUNCTION] [--backend NAME] [--isolate fork] "
        '[--rng "as is"] [--bisect] [--compiled-autograd] file.py::function | module:function',
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", metavar="target", help=f"a function or nn.Module: {target.FORMS}; the file is imported, not run as a program"
    )
    parser.add_argument(
        "--inputs",
        metavar="FACTORY",
        help=f"a function that returns a list with the arguments of each call: its name in the same module, or {target.FORMS}",
    )
    parser.add_argument("--calls", type=int, default=2, metavar="N", help="number of calls with each input (default: 2)")
    parser.add_argument("--backend", metavar="NAME", help="the backend of torch.compile (default: eager)")
    parser.add_argument(
        "--isolate",
        choices=("copy", "fork"),
        default="copy",
        help="copy: run eager and compiled code on copies of all objects; fork: also each in a forked process (default: copy)",
    )
    parser.add_argument(
        "--change",
        metavar="FUNCTION",
        help="a function that changes state: dynx makes all calls, then calls FUNCTION, then makes all calls again",
    )
    parser.add_argument(
        "--rng",
        choices=("aligned", "as is"),
        default="aligned",
        help="aligned: inductor draws the same random numbers as eager code; 'as is': it draws its own (default: aligned)",
    )
    parser.add_argument("--bisect", action="store_true", help="find the first graph node that causes a difference if compiled")
    parser.add_argument(
        "--compiled-autograd", action="store_true", help="capture the backward passes of the compiled side, and compile them"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Return a function that imports the user's module, checks the function, prints the report and returns the exit code."""

    def run() -> int:
        from dynx.effects import check

        try:
            found = target.parse(arguments.target, "dynx check")
            module, fn = target.load(found, "dynx check")
            report = check(
                fn,
                inputs=_inputs(module, arguments.inputs, found),
                calls=arguments.calls,
                backend=arguments.backend,
                isolate=arguments.isolate,
                bisect=arguments.bisect,
                rng=arguments.rng,
                compiled_autograd=arguments.compiled_autograd,
                change=_named(module, arguments.change, found, "--change") if arguments.change else None,
            )
        except UsageError as error:
            print(f"dynx: {error}", file=sys.stderr)
            return 2
        except Exception as error:  # noqa: BLE001 - of the user's module or input factory; 1 would say that something differs
            traceback.print_exception(error.with_traceback(of_program(error.__traceback__)))
            return 2
        print_record(report, as_json=arguments.json)
        return 0 if report.ok else 1

    return run


def _inputs(module: ModuleType, factory: str | None, found: target.Target) -> list[Any]:
    if factory is None and not callable(getattr(module, "inputs", None)):
        raise UsageError(
            f"there are no arguments for {found}\n  with --inputs, name a function that returns a list of arguments"
        )
    make = _named(module, factory or "inputs", found, "--inputs")
    made = make() if callable(make) else make
    if not isinstance(made, (list, tuple)):
        raise UsageError(
            f"the inputs from {factory or 'inputs'} are a {type(made).__name__}, not a list\n  return a list of argument tuples"
        )
    return list(made)


def _named(module: ModuleType, name: str, found: target.Target, option: str) -> Any:
    """Return the object that `--inputs` or `--change` names: in the checked function's module, or as `file.py::name`."""
    if ":" in name:
        return target.load(target.parse(name, f"dynx check {option}"), f"dynx check {option}")[1]
    return target.attribute(module, name, found.program)
