"""The command line: `dynx run script.py` and what reads its run file."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from dynx.cli import run
from dynx.errors import DynxError, DynxWarning

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code: 0 fine, 1 the answer is no, 2 the command makes no sense.

    `dynx run` takes the process over, as the program would: its exceptions come out of here, its report comes at exit.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    own, rest = run.split(given)
    arguments = _parser().parse_args(own)
    arguments.rest = rest
    try:
        done = _act(arguments)
    except BrokenPipeError:
        sys.stdout = None  # nobody reads any more; Python must not try to flush
        return 0
    except DynxError as error:
        print(f"dynx: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"dynx: {error.strerror or error}: {error.filename}", file=sys.stderr)
        return 2
    return done() if callable(done) else done


def _act(arguments: argparse.Namespace) -> int | Callable[[], int]:
    """Do what is asked, or give the program to run: its errors are its own, not ours to explain."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", DynxWarning)
        warnings.showwarning = _show_warning
        result: int | Callable[[], int] = arguments.act(arguments)
    return result


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    print(f"dynx: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    from dynx import __version__
    from dynx.cli import asserts, demo, doctor, guards, rule, show, trace

    parser = argparse.ArgumentParser(prog="dynx", description="See what torch.compile does with your code.")
    parser.add_argument("--version", action="version", version=f"dynx {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (run, show, trace, guards, asserts, rule, doctor, demo):
        command.add_to(commands)
    return parser
