"""Print the results of a command: as wide as the terminal or `COLUMNS`, on streams of any encoding."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dynx.records import Shown

_DEFAULT = 80  # columns
_LEAST = 20  # columns; on a narrower terminal lines are cut
_HEIGHT = 25  # lines; any value will do, but without one rich prints 80 columns on a dumb terminal, whatever the width


def show(content: RenderableType, *, stderr: bool = False) -> None:
    """Print to standard output, or to standard error; lines have no trailing blanks."""
    from rich.console import Console

    from dynx.report._trimmed import Trimmed

    Console(stderr=stderr, width=columns(stderr=stderr), height=_HEIGHT).print(Trimmed(content))


def print_record(record: Shown, *, as_json: bool) -> None:
    """Print a record (the result of a command) to standard output: as JSON, or as text for a person."""
    if as_json:
        print(record.to_json())
    else:
        show(record)


def columns(*, stderr: bool = False) -> int:
    """Return the width of the output in columns.

    Replaces the detection of rich, which ignores `COLUMNS` on a dumb terminal and may use the terminal of another stream.
    """
    text = os.environ.get("COLUMNS", "")
    if text.isdecimal() and int(text) > 0:
        return max(_LEAST, int(text))
    own, other = (sys.stderr, sys.stdout) if stderr else (sys.stdout, sys.stderr)
    for stream in (own, sys.stdin, other):  # the reader of a pipe usually prints to the terminal of the command
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (AttributeError, OSError, ValueError):  # closed, replaced, or no terminal
            continue
        if width > 0:
            return max(_LEAST, width)
    return _DEFAULT


@contextlib.contextmanager
def encodable(*streams: Any) -> Iterator[None]:
    """Print a question mark for a character that a stream cannot encode, instead of raising UnicodeEncodeError.

    A context manager for streams in encodings such as ASCII or Latin-1; at the end, it restores their error handlers.
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
    """Flush a stream; ignore errors, since the program may have closed or replaced the stream."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stream.flush()
