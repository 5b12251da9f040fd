"""`dynx diff BEFORE AFTER`: print what got better or worse between two saved runs; does not need torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from dynx.cli.command import Subparsers
from dynx.cli.numbers import number
from dynx.cli.run_file import UNREADABLE, load
from dynx.cli.screen import print_record


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "diff",
        help="compare two runs: exit code 1 for new or more frequent recompiles or graph breaks, 3 for a damaged or newer file",
    )
    parser.add_argument("before", type=Path, help="the earlier run file")
    parser.add_argument("after", type=Path, help="the later run file")
    parser.add_argument(
        "--max-slower",
        type=number("a ratio, such as 1.2", lambda ratio: ratio > 0),
        metavar="RATIO",
        help="also fail if compiling takes more than RATIO times as long in the later run",
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    before, after = load(arguments.before), load(arguments.after)
    diff = before.diff(after)
    print_record(diff, as_json=arguments.json)
    if any(run.problems or run.unknown for run in (before, after)):
        return UNREADABLE
    is_slower = arguments.max_slower is not None and diff.slower > arguments.max_slower
    if is_slower and not arguments.json:
        print(f"FAILED compiling takes {diff.slower:.2f} times as long, at most {arguments.max_slower:g} allowed")
    return 1 if diff.worse or is_slower else 0
