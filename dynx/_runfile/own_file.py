"""A run file that is opened again if the program closes its descriptor.

A program may close all descriptors (`os.closerange`, as daemons do) and then open a file that gets the number of the run file's
descriptor. Therefore each write first checks that the descriptor still belongs to the run file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class OwnFile:
    """A file that this process writes: it is created, or emptied if it exists; `path` may also be a device or a pipe.

    The constructor raises OSError if the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
        self._status = os.fstat(self._descriptor)  # has device and inode, which a rename does not change

    @property
    def path(self) -> Path:
        """The current path of the file, which another process may have renamed."""
        for candidate in (self._path, *self._path.parent.glob(f"{self._path.stem}.*{self._path.suffix}")):
            with suppress(OSError):
                if os.path.samestat(candidate.stat(), self._status):
                    return candidate
        return self._path

    def fileno(self) -> int:
        return self._descriptor

    def rename(self, path: Path) -> None:
        """Record the new path of the file, which the caller has already renamed."""
        self._path = path

    def write(self, data: bytes) -> None:
        """Append bytes without buffering. Raises OSError if that fails."""
        if not self._is_open():
            self._open_again()
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Close the descriptor, unless the program has closed it and reused its number for another file."""
        if self._is_open():
            os.close(self._descriptor)

    def _is_open(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._status)
        except OSError:
            return False

    def _open_again(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        if not os.path.samestat(os.fstat(descriptor), self._status):
            os.close(descriptor)
            raise FileNotFoundError(f"the run file {self._path} was deleted or replaced while dynx was writing it")
        self._descriptor = descriptor
