"""`dynx cache why A B`: print why run B did not find graphs in the compile caches that run A filled."""

from __future__ import annotations

import argparse
from pathlib import Path

from dynx.cli.command import Subparsers
from dynx.cli.screen import print_record


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "cache", help="explain why a run missed the caches that an earlier run filled: cache why FIRST SECOND"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    text = "print why the second run did not find graphs in the caches that the first run filled; exit code 1 if it missed any"
    why = actions.add_parser("why", help=text, description=f"{text[0].upper()}{text[1:]}.")
    why.add_argument("first", type=Path, help="the run that filled the caches, as a file that `dynx run --detail full` wrote")
    why.add_argument("second", type=Path, help="the run that missed the caches, as a file that `dynx run --detail full` wrote")
    why.add_argument("--json", action="store_true", help="print the causes of cache misses as JSON")
    why.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    """Print why graphs missed or bypassed the caches; return 1 if any did, 2 if the runs cannot be compared, else 0."""
    from dynx.pgo import cachediff

    found = cachediff(arguments.first, arguments.second)
    print_record(found, as_json=arguments.json)
    return 2 if found.problem is not None else 1 if found else 0
