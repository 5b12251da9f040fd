"""The command line: `dynx run script.py` and what reads its run file."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from dynx.errors import DynxError, DynxWarning

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code: 0 fine, 1 the answer is no, 2 the command makes no sense."""
    arguments = _parser().parse_args(sys.argv[1:] if argv is None else list(argv))
    with warnings.catch_warnings():
        # a damaged run file is told in one line; a watched program keeps its own filters, see `dynx.cli.run`
        if arguments.command != "run":
            warnings.simplefilter("always", DynxWarning)
            warnings.showwarning = _show_warning
        try:
            code: int = arguments.act(arguments)
        except DynxError as error:
            print(f"dynx: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            print(f"dynx: {error.strerror or error}: {error.filename}", file=sys.stderr)
            return 2
    return code


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    print(f"dynx: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    from dynx import __version__
    from dynx.cli import asserts, demo, doctor, rule, run, show

    parser = argparse.ArgumentParser(prog="dynx", description="See what torch.compile does with your code.")
    parser.add_argument("--version", action="version", version=f"dynx {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (run, show, asserts, rule, doctor, demo):
        command.add_to(commands)
    return parser
