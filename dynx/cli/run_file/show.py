"""`dynx show FILE`: print a saved run; does not need torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from dynx.cli.command import Subparsers
from dynx.cli.run_file import DEFAULT, add_top, load
from dynx.cli.screen import show


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("show", help="print the report of a saved run")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT, help="the run file (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="show all that was recorded, in tables, not only the findings")
    add_top(parser)
    parser.add_argument("--json", action="store_true", help="print the run with its findings as JSON")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    run = load(arguments.file)
    if arguments.json:
        print(run.to_json())
        return 0
    from dynx.cli.run_file.children import report

    show(report(run, arguments.file, full=arguments.full, top=arguments.top))
    return 0
