"""`dynx rule DX101`: print the page of an advice rule, or list all rules."""

from __future__ import annotations

import argparse

from dynx.cli.command import Subparsers
from dynx.cli.screen import show

# the topic of each family of rules, by the first digit of their ids; also the headings of docs/rules/README.md
FAMILIES = {
    "DX1": "Recompiles",
    "DX2": "Graph breaks",
    "DX3": "Recompile limits",
    "DX4": "Compile caches on disk",
    "DX5": "Graph breaks in libraries",
    "DX6": "CUDA graphs",
    "DX7": "Saved tensors",
    "DX8": "Side effects",
    "DX90": "Compile time",
    "DX91": "Values that no guard watches",
}


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("rule", help="explain an advice rule such as DX101, or list all rules")
    parser.add_argument("id", nargs="?", help="a rule, for example DX101; all rules if omitted")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from rich.console import Group
    from rich.markdown import Markdown
    from rich.table import Table
    from rich.text import Text

    from dynx.advice import RULES, page

    if arguments.id:
        show(Markdown(page(arguments.id.upper())))
        return 0
    table = Table.grid(padding=(0, 2))
    for number, (family, heading) in enumerate(FAMILIES.items()):
        if number:
            table.add_row("", "")
        table.add_row("", Text(heading, style="bold"))
        for rule in RULES.values():
            if rule.id.startswith(family):
                table.add_row(rule.id, rule.title)
    note = Text("\ndynx rule DX101 prints the page of a rule\ndocs/screen.md explains the report", style="dim")
    show(Group(table, note))
    return 0
