"""`dynx show FILE`: a saved run, also where torch is not installed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dynx.cli.run import DEFAULT


def add_to(commands: Any) -> None:
    parser = commands.add_parser("show", help="show a saved run")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT)
    parser.add_argument("--full", action="store_true", help="show every table")
    parser.add_argument("--json", action="store_true", help="print the run with its findings as JSON")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from dynx.records import Run

    run = Run.load(arguments.file)
    if arguments.json:
        print(run.to_json())
        return 0
    from rich.console import Console

    from dynx.cli.children import screen

    Console().print(screen(run, arguments.file, full=arguments.full))
    return 0
