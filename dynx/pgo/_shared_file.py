"""Merge profiles of several processes into one file."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dynx.pgo._profile import Profile


def load_all(path: Path) -> Profile:
    """Return the profile in a file, joined with those that processes wrote beside it because they could not lock it.

    An empty profile if there is no such file. Raises OSError and BadProfile as `Profile.load` does.
    """
    found = [one for one in (path, *_beside(path)) if one.is_file()]
    return replace(Profile().merge(*map(Profile.load, found)), path=str(path))


def update(path: Path, change: Callable[[Profile], Profile]) -> Path:
    """Replace a profile by `change(profile)` while no other process does; return the path of the file that was written.

    Where files cannot be locked, as on some network file systems, this process writes a file of its own beside it,
    `profile.pid-<host>-<pid>.json`, which `load_all` reads too.

    Raises OSError if neither file can be written, and BadProfile if the file is no profile; it is left as it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(path):
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
    """Hold a lock on a file beside `path`, which is replaced and cannot be locked itself; it ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows
        raise NotLocked from None
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise NotLocked from error
        yield


def _beside(path: Path) -> list[Path]:
    """Return the files of single processes, which `update` names `profile.pid-<host>-<number>.json`."""
    name = re.compile(rf"{re.escape(path.stem)}\.pid-.+-\d+{re.escape(path.suffix)}")
    return sorted(file for file in path.parent.iterdir() if name.fullmatch(file.name)) if path.parent.is_dir() else []
