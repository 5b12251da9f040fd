"""A line on the terminal that names the function being compiled."""

from __future__ import annotations

import sys
import threading

from dynx._trace.bus import listen
from dynx.records import Compile, Location, Record
from dynx.records.location import short_path

_ERASE = "\r\x1b[2K"


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
        self._write(f"{_ERASE} compiling {compile_id} {location.function} {short_path(own.file)}:{own.line}")

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
