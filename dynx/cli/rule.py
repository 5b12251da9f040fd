"""`dynx rule DX101`: print the page of an advice rule, or list all rules."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynx.cli.command import Subparsers


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("rule", help="explain an advice rule, or list all rules")
    parser.add_argument("id", nargs="?", help="a rule, for example DX101; all rules if omitted")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.table import Table

    from dynx.advice import RULES, page

    console = Console()
    if arguments.id:
        console.print(Markdown(page(arguments.id.upper())))
        return 0
    table = Table.grid(padding=(0, 2))
    for rule in RULES.values():
        table.add_row(rule.id, rule.title)
    console.print(table)
    return 0
