"""A line on the terminal that names the function being compiled."""

from __future__ import annotations

import sys
import threading
import unicodedata

from dynx._trace.bus import listen
from dynx.cli.screen import columns
from dynx.records import Compile, Location, Record
from dynx.records.location import short_path

_ERASE = "\r\x1b[2K"


def fitted(text: str, place: str) -> str:
    """Return `text` and the location `place`, shortened to one line of the terminal; the line number is always kept.

    The terminal would wrap a longer text, and dynx could then not erase it.
    """
    width = columns(stderr=True) - 1
    room = max(12, width - _columns_of(text))
    if _columns_of(place) > room:
        while _columns_of(place) > room - 1:
            place = place[1:]
        place = f"…{place}"
    while text and _columns_of(text) + _columns_of(place) > width:
        text = text[:-1]
    return f"{text}{place}"


def _columns_of(text: str) -> int:
    return len(text) + sum(unicodedata.east_asian_width(character) in ("W", "F") for character in text)


class Progress:
    """A context manager that shows each compilation in progress as a line on stderr, if stderr is a terminal."""

    def __init__(self) -> None:
        isatty = getattr(sys.stderr, "isatty", None)  # stderr may be closed
        self._on = isatty is not None and isatty()
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        self._listening = listen(self._end, on_start=self._start) if self._on else None
        return self

    def __exit__(self, *exc: object) -> None:
        if self._listening is not None:
            self._listening.remove()

    def _start(self, compile_id: str, location: Location) -> None:
        own = location.own
        line = fitted(f" compiling {compile_id} {location.function} ", f"{short_path(own.file)}:{own.line}")
        self._write(f"{_ERASE}{line}")

    def _end(self, record: Record) -> None:
        if isinstance(record, Compile):
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except (OSError, ValueError):
                self._on = False  # the terminal was closed; the program continues
