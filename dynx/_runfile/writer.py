"""Write run files while the program runs.

Lines are appended and flushed one by one, so the file of a killed process has all records that were written until then. The
last line has a checksum of all lines before it, so that a reader detects changes in them.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from dynx._runfile import rank
from dynx._runfile.contents import CHECKSUM, checksum_of, header_line
from dynx._runfile.own_file import OwnFile
from dynx.errors import DynxWarning
from dynx.records.codec import to_data
from dynx.records.record import Record


class RunWriter:
    """Append records to a run file; if writing fails, warn once and write nothing more.

    The name of the file depends on the process, which `header` describes:

    - a process without rank and parent writes `last.dynx`; if another process begins to write `last.dynx` meanwhile, the file
      of the first is renamed to `last.12345.dynx` (its process id), so that `last.dynx` is the run that began last;
    - a process of a distributed job, whose header has `rank`, writes `last.rank3.dynx` (see `dynx._runfile.rank`);
    - a child process (its header has `parent`, or it was forked) writes `last.12345.dynx`, beside the file of the parent. When
      the child gets a rank, its file is renamed to `last.rank3.dynx`, unless the parent has a rank already.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path = path
        self._header = dict(header)
        self._pid = os.getpid()
        self._file: OwnFile | None = None
        self._written: OwnFile | None = None  # the file, also when it is closed
        self.is_complete = False  # whether the file has its end
        self._checksum = 0  # of the lines written so far
        self._is_forked = False
        self._unranked = path  # the name that a rank is added to
        self._seeks_rank = "parent" in header and "rank" not in header
        if "parent" in header:
            self._open_process_file()
        elif "rank" in header:
            self._open(rank.process_file(path))
            self._claim(rank.Rank(header["rank"], header["world_size"], header.get("restart", 0)))
        else:
            self._open(path, is_newest=True)
        _writers.add(self)

    @property
    def path(self) -> Path:
        """The current path of the run file; it changes if the rank becomes known, or another process takes the name."""
        return self._path if self._written is None else self._written.path

    @property
    def child_path(self) -> Path:
        """The path from which child processes derive the names of their files; contains the rank of this process, if any."""
        return self._path if "rank" in self._header else self._unranked

    @property
    def header(self) -> Mapping[str, Any]:
        """The header of the run file, with the rank as soon as it is known."""
        return self._header

    def write(self, record: Record) -> None:
        """Append a record to the file, without buffering."""
        self._line(to_data(record))

    def end(self, end: Mapping[str, Any]) -> None:
        """Append the end line, with the fields of `end`, and close the file."""
        self._line({"type": "end", **end})
        self._write({"type": CHECKSUM, "value": self._checksum})
        if self._file is not None:
            self.is_complete = True
            with suppress(OSError):  # the program has closed the descriptor
                rank.unlock(self._file)
            self._file.close()
            self._file = None

    def is_in_use(self) -> bool:
        """Return whether this process has its run file open, or is a forked child that will open one because it has a rank."""
        if os.getpid() == self._pid:
            return self._file is not None
        return self._is_forked and "rank" not in self._header and rank.current_rank() is not None

    def look_for_rank(self) -> None:
        """Rename the run file of a child process once its rank is known; called before each record and before each fork."""
        if os.getpid() != self._pid and self.is_in_use():
            self._move_to_child()
        if not self._seeks_rank or self._file is None or (own_rank := rank.current_rank()) is None:
            return
        self._seeks_rank = False
        self._header |= own_rank.header()
        self._write(header_line(self._header))  # a reader uses the last header
        self._claim(own_rank)

    def leave_to_parent(self) -> None:
        """Close the parent's run file in a forked child; the child opens its own file when it writes a record."""
        self._is_forked = self._is_forked or self._file is not None
        if self._file is not None:
            self._file.close()  # the parent's descriptor stays open in the parent
            self._file = None

    def _open(self, path: Path, *, is_newest: bool = False) -> None:
        self._path, self._checksum = path, 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._written = rank.open_newest(path) if is_newest else OwnFile(path)
            if not is_newest:
                rank.lock(self._file)
        except OSError as error:
            self._give_up(error)
        self._write(header_line(self._header))

    def _open_process_file(self) -> None:
        own_rank = rank.current_rank() if self._seeks_rank else None
        path = rank.process_file(self.child_path)
        self._header |= {"pid": self._pid, **(own_rank.header() if own_rank is not None else {})}
        self._open(path)
        if own_rank is not None:
            self._seeks_rank = False
            self._claim(own_rank)

    def _claim(self, own_rank: rank.Rank) -> None:
        if self._file is None:
            return
        try:
            self._path = rank.claim(self._path, self._unranked, own_rank, self._header)
            self._file.rename(self._path)
        except OSError:
            pass  # the file keeps the name of its process: nothing is lost

    def _line(self, data: Mapping[str, Any]) -> None:
        if os.getpid() != self._pid:
            self._move_to_child()
        else:
            self.look_for_rank()
        self._write(data)

    def _write(self, data: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        line = json.dumps(data, default=str).encode() + b"\n"
        self._checksum = checksum_of(line, self._checksum)
        try:
            self._file.write(line)
        except OSError as error:
            self._give_up(error)

    def _move_to_child(self) -> None:
        self._pid = os.getpid()
        if not self._is_forked:
            self.leave_to_parent()  # forked by something other than os.fork
        if not self._is_forked:
            return
        self._is_forked = False
        self._seeks_rank = "rank" not in self._header
        self._header |= {"parent": os.getppid()}
        self._open_process_file()

    def _give_up(self, error: OSError) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        text = f"dynx cannot write {self._path}: {error.strerror or error}; the program goes on, the run is not saved"
        try:
            warnings.warn(text, DynxWarning, stacklevel=2)
        except DynxWarning:  # the program turns warnings into errors, but this must not end it
            sys.stderr.write(text + "\n")


_writers: WeakSet[RunWriter] = WeakSet()


def _before_fork() -> None:
    for writer in tuple(_writers):
        writer.look_for_rank()  # children of a rank have no rank, so the rank must be looked up before the fork


def _after_fork_in_child() -> None:
    for writer in tuple(_writers):
        writer.leave_to_parent()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
