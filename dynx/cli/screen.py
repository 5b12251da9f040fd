"""Print what a command has found: as wide as the terminal or `COLUMNS`, on streams of any encoding."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

_DEFAULT = 80  # columns
_LEAST = 20  # columns; on a narrower terminal lines are cut
_HEIGHT = 25  # lines; nothing depends on it, but without it rich takes 80 columns of a dumb terminal, whatever the width


def show(content: RenderableType, *, stderr: bool = False) -> None:
    """Print on standard output, or on standard error; lines have no blanks at their ends."""
    from rich.console import Console

    from dynx.report._trimmed import Trimmed

    Console(stderr=stderr, width=columns(stderr=stderr), height=_HEIGHT).print(Trimmed(content))


def columns(*, stderr: bool = False) -> int:
    """Return the width of what is printed.

    rich ignores `COLUMNS` on a dumb terminal, and takes the width of any terminal of the process before that of the stream.
    """
    text = os.environ.get("COLUMNS", "")
    if text.isdecimal() and int(text) > 0:
        return max(_LEAST, int(text))
    own, other = (sys.stderr, sys.stdout) if stderr else (sys.stdout, sys.stderr)
    for stream in (own, sys.stdin, other):  # the reader of a pipe is mostly on the terminal of the command
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (AttributeError, OSError, ValueError):  # closed, replaced, or no terminal
            continue
        if width > 0:
            return max(_LEAST, width)
    return _DEFAULT


@contextlib.contextmanager
def encodable(*streams: Any) -> Iterator[None]:
    """Print a question mark for what a stream cannot encode, instead of raising UnicodeEncodeError; restored at the end.

    Such streams are terminals with `LC_ALL=C` or Latin-1, and files opened so.
    """
    changed = [(stream, stream.errors) for stream in streams if _may_fail(stream)]
    for stream, _ in changed:
        stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        for stream, errors in changed:
            with contextlib.suppress(ValueError):  # it was closed meanwhile
                stream.reconfigure(errors=errors)


def _may_fail(stream: Any) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return hasattr(stream, "reconfigure") and not encoding.lower().replace("-", "").startswith("utf")


def flush(stream: Any) -> None:
    """Flush a stream of the program, which may have closed it, or put something else in its place."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stream.flush()
