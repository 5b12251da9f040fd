"""A run file that is opened again if the program closes its descriptor.

A program may close all descriptors (`os.closerange`, as daemons do); then the descriptor's number may belong to a file of the
program. Therefore each write first checks that the descriptor belongs to the run file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class FileId(NamedTuple):
    """Device and inode of a file, which a rename does not change."""

    device: int
    inode: int


class OwnFile:
    """A file that this process creates, or empties if it exists, and writes through a descriptor.

    Args:
        path: Where the file is created; if it is a device or a pipe, that is opened.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
        self.id = _id_of(self._descriptor)

    @property
    def path(self) -> Path:
        """The current path of the file, which another process may have renamed."""
        for candidate in (self._path, *self._path.parent.glob(f"{self._path.stem}.*{self._path.suffix}")):
            try:
                status = candidate.stat()
            except OSError:
                continue
            if FileId(status.st_dev, status.st_ino) == self.id:
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
            return _id_of(self._descriptor) == self.id
        except OSError:
            return False

    def _open_again(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        if _id_of(descriptor) != self.id:
            os.close(descriptor)
            raise FileNotFoundError(f"the run file {self._path} was deleted")
        self._descriptor = descriptor


def _id_of(descriptor: int) -> FileId:
    status = os.fstat(descriptor)
    return FileId(status.st_dev, status.st_ino)
