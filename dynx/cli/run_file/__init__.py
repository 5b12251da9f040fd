"""The commands that read saved runs; they do not need torch."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dynx.errors import UsageError
from dynx.records.codec import visible

if TYPE_CHECKING:
    from dynx._run import Run

DEFAULT = Path(".dynx") / "last.dynx"  # where `dynx run` saves
UNREADABLE = 3  # the exit code of `dynx assert` and `dynx diff` for a file that could not be read completely


def load(file: Path) -> Run:
    """Read a run file. If the file is missing, the UsageError says how to write it, and lists the run files in its folder."""
    from dynx._run import Run

    try:
        return Run.load(file)
    except FileNotFoundError:
        option = "" if file == DEFAULT else f"--out {shlex.quote(str(file))} "
        problem, advice = f"there is no run file {file}", f"to write it: dynx run {option}train.py"
        found = _others(file.parent)
    except IsADirectoryError:
        problem, advice = f"{file} is a folder", "name a run file, as dynx run --out FILE train.py writes"
        found = _others(file)
    raise UsageError(visible(f"{problem}\n  {found}{advice}"))


def _others(folder: Path) -> str:
    """Return the part of an error message that lists the run files of a folder; empty if there are none."""
    names = [shlex.quote(str(file)) for file in sorted(folder.glob("*.dynx"))]
    return f"there is {', '.join(names[:3])}{', …' if len(names) > 3 else ''}; " if names else ""


def add_top(parser: argparse.ArgumentParser) -> None:
    """Add the option `--top N` to a command that prints a report."""
    parser.add_argument(
        "--top",
        type=_positive,
        metavar="N",
        help="show the N most expensive findings, and N rows of each table (default: 10; all with --full)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return int(text)
