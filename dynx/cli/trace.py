"""`dynx trace FILE -o run.json`: a saved run along time, for Perfetto; also where torch is not installed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dynx.cli.run import DEFAULT


def add_to(commands: Any) -> None:
    parser = commands.add_parser("trace", help="write a saved run as a trace for Perfetto")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT)
    parser.add_argument("-o", "--out", type=Path, default=Path("dynx-trace.json"), help="default: %(default)s")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> int:
    from dynx.records import Run

    arguments.out.write_text(Run.load(arguments.file).to_perfetto(), encoding="utf-8")
    print(f"{arguments.out}: open it at https://ui.perfetto.dev")
    return 0
