"""`dynx doctor`: can dynx see what it needs to on this torch?"""

from __future__ import annotations

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="check that the installed torch has what dynx needs")
    parser.add_argument("--canaries", action="store_true", help="also try the behaviour on tiny programs (under a minute)")
    parser.add_argument("--strict", action="store_true", help="exit 1 also when a signature has changed")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from dynx._doctor.doctor import doctor

    report = doctor(canaries=arguments.canaries)
    if arguments.json:
        print(report.to_json())
    else:
        from rich.console import Console

        Console().print(report)
    return 0 if (report.unchanged if arguments.strict else report.healthy) else 1
