"""`dynx rule DX101`: what a rule means and what to do about it."""

from __future__ import annotations

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    parser = commands.add_parser("rule", help="explain a rule, or list all")
    parser.add_argument("id", nargs="?", help="for example DX101")
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
