"""`dynx demo`: `dynx run --try` on a small program with common mistakes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from dynx._what_if.budget import SHARE
from dynx.cli import run
from dynx.cli.command import Subparsers
from dynx.cli.run_file import DEFAULT


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("demo", help="run a small program with common mistakes, to see a report")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    program = Path(__file__).with_name("demo_program.py")
    print(f"$ dynx run --try {program.name}      # a GPT-like model with common mistakes; downloads nothing\n", flush=True)
    options = {"full": False, "top": None, "detail": "normal", "post_mortem": False, "pgo": None, "option": ""}
    options |= {"trial": None, "tries": True}
    return run.act(argparse.Namespace(target=str(program), rest=[], out=DEFAULT, what_if=SHARE, **options))
