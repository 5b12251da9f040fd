"""`dynx trace FILE -o run.json`: write a saved run as a timeline for Perfetto; does not need torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from dynx.cli.command import Subparsers
from dynx.cli.run_file import DEFAULT, load


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("trace", help="write a saved run as a timeline for Perfetto")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT, help="the run file (default: %(default)s)")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("dynx-trace.json"), help="the file to write (default: %(default)s)"
    )
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    arguments.out.write_text(load(arguments.file).to_perfetto(), encoding="utf-8")
    print(f"{arguments.out}: open it at https://ui.perfetto.dev")
    return 0
