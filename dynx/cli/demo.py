"""`dynx demo`: the main job on a program that makes common mistakes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynx.cli import run


def add_to(commands: Any) -> None:
    parser = commands.add_parser("demo", help="watch a small program that makes common mistakes")
    parser.set_defaults(act=act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    program = Path(__file__).with_name("demo_program.py")
    print(f"$ dynx run {program.name}      # a GPT-like model with mistakes people make; needs no download\n", flush=True)
    return run.act(
        argparse.Namespace(
            target=str(program), rest=[], out=run.DEFAULT, full=False, detail="normal", post_mortem=False, module=False
        )
    )
