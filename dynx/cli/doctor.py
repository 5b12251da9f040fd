"""`dynx doctor`: check that the installed torch has everything that dynx needs."""

from __future__ import annotations

import argparse

from dynx.cli.command import Subparsers
from dynx.cli.screen import show


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("doctor", help="check that the installed torch has everything that dynx needs")
    parser.add_argument(
        "--canaries", action="store_true", help="also check the behaviour of torch on small programs (under a minute)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with code 1 also if a signature in torch has changed")
    parser.add_argument("--full", action="store_true", help="list every private name of torch that dynx uses")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, with the names that --full lists")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from dynx._doctor.doctor import doctor

    report = doctor(canaries=arguments.canaries)
    if arguments.json:
        print(report.to_json())
    else:
        from dynx.report._doctor import screen

        show(screen(report, full=arguments.full))
    return 0 if (report.unchanged if arguments.strict else report.healthy) else 1
