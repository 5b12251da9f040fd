"""Merge profiles of several processes into one file."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dynx.pgo._profile import Profile, require_folder


def load_all(path: Path) -> Profile:
    """Return the profile in a file, joined with the separate files of processes that could not lock it (see `update`).

    Returns an empty profile if there is no such file. Raises OSError and BadProfile as `Profile.load` does, and
    FileNotFoundError if there is no such folder.
    """
    require_folder(path)
    found = [one for one in (path, *_beside(path)) if one.is_file()]
    return replace(Profile().merge(*map(Profile.load, found)), path=str(path))


def update(path: Path, change: Callable[[Profile], Profile]) -> Path:
    """Replace the profile in a file by `change(profile)` under a lock; return the path of the file that was written.

    If the file system has no locks, as some network file systems, this process writes a separate file in the same folder,
    `profile.pid-<host>-<pid>.json`, which `load_all` reads too.

    Raises OSError if the file cannot be read or written, and BadProfile if it is not a profile; the file is then unchanged.
    """
    require_folder(path)
    try:
        with _locked(Path(os.path.realpath(path))):  # all links to a file share one lock
            change(Profile.load(path) if path.is_file() else Profile()).save(path)
            return path
    except NotLocked:
        own = path.with_name(f"{path.stem}.pid-{socket.gethostname()}-{os.getpid()}{path.suffix}")
        change(Profile.load(own) if own.is_file() else Profile()).save(own)
        return own


class NotLocked(OSError):
    """Raised if the file system cannot lock files."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on a lock file beside `path`, and delete the lock file at the end.

    `path` itself cannot be locked, since it is replaced. A process whose lock file was deleted while it waited tries again.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        raise NotLocked from None
    lock = path.with_name(f".{path.name}.lock")
    while True:
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)  # released when the process ends
            except OSError as error:
                lock.unlink(missing_ok=True)
                raise NotLocked from error
            if not _is_at(file.fileno(), lock):
                continue
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)  # while it is locked, so no other process holds it
            return


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path still refers to the file that is open as `descriptor`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _beside(path: Path) -> list[Path]:
    """Return the files `profile.pid-<host>-<pid>.json` that processes wrote beside `path` because they could not lock it."""
    name = re.compile(rf"{re.escape(path.stem)}\.pid-.+-\d+{re.escape(path.suffix)}")
    return sorted(file for file in path.parent.iterdir() if name.fullmatch(file.name)) if path.parent.is_dir() else []
