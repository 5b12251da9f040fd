"""Find the rank of this process in a distributed job, and name its run file after it: `last.rank3.dynx`.

Each process first writes to a file named after its process id, which is renamed when the rank is known. A file that
already has the new name is replaced. But if another process of the same job wrote that file, or a live process has it open, the
new file gets a number: `last.rank3-2.dynx`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dynx._runfile.own_file import OwnFile

# None on Windows, where an open file cannot be renamed either: files keep their process id
_fcntl: Any = import_module("fcntl") if find_spec("fcntl") is not None else None

# torchrun, accelerate and DeepSpeed set the first pair; mpirun of Open MPI and of MPICH and Intel MPI set the others
_VARIABLES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
_MAX_HEADER = 2**20  # bytes: a header is a few hundred, but repeats the command line


@dataclass(frozen=True, slots=True)
class Rank:
    """The global rank of a process and the world size; `restart` counts how often torchrun has restarted the workers."""

    rank: int
    world_size: int
    restart: int = 0

    def header(self) -> dict[str, int]:
        """Return the rank as fields of a run file's header."""
        numbers = {"rank": self.rank, "world_size": self.world_size}
        return {**numbers, "restart": self.restart} if self.restart else numbers


def rank_in_environment() -> Rank | None:
    """Return the rank that a launcher (torchrun, mpirun) set in the environment variables of this process, or None."""
    for rank_variable, size_variable in _VARIABLES:
        rank, world_size = _number(rank_variable), _number(size_variable)
        if rank is not None and world_size is not None:
            return Rank(rank, world_size, _number("TORCHELASTIC_RESTART_COUNT") or 0)
    return None


def current_rank() -> Rank | None:
    """Return the rank of this process from the environment, else from the default process group, else None.

    torch is never imported: a process that has not imported it has no process group.
    """
    rank = rank_in_environment()
    distributed: Any = sys.modules.get("torch.distributed")
    if rank is not None or distributed is None:
        return rank
    try:
        return Rank(distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else None
    except (AttributeError, RuntimeError, ValueError):  # built without it, still being imported, or just destroyed
        return None


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def job_in_environment() -> str | None:
    """Return an id of this launch of torchrun: its run id and the process id of its agent; None without torchrun."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if run_id is None else f"{run_id}-{os.getppid()}"


def process_file(path: Path) -> Path:
    """Return `path` with the id of this process in the file name: `last.12345.dynx` for `last.dynx`."""
    return path.with_suffix(f".{os.getpid()}{path.suffix}")


def lock(file: OwnFile) -> None:
    """Lock `file`, so that other processes detect that a live process writes it."""
    _flock(file.fileno(), "LOCK_EX")


def unlock(file: OwnFile) -> None:
    """Release the lock of `file`; closing the file would not release it while a forked child has the file open too."""
    _flock(file.fileno(), "LOCK_UN")


def claim(own: Path, path: Path, rank: Rank, header: Mapping[str, Any]) -> Path:
    """Replace the process id in the name of this process's run file by its rank (`last.rank3.dynx`); return the new path.

    `own` is the file to rename, and `path` the path without a rank, as passed to `--out`. `header` is the header of `own`: its
    `job` and `pid` distinguish files of this launch from older files. Raises OSError if the file cannot be renamed.
    """
    name = f"rank{rank.rank}" + (f".restart{rank.restart}" if rank.restart else "")
    with _locked(path.parent):
        target = next(file for file in _numbered(path, name) if not _is_taken(file, header))
        os.replace(own, target)
    return target


def open_newest(path: Path) -> OwnFile:
    """Create and lock a run file at `path`; a file there that a live process has open is first renamed to `last.12345.dynx`.

    So `path` is always the run that began last, and no process writes to the file of another process. Raises OSError if the
    file cannot be created.
    """
    if path.exists() and not path.is_file():  # a device or a pipe
        return OwnFile(path)
    with _locked(path.parent):
        if path.exists() and _is_locked(path):
            names = _numbered(path, str(read_header(path).get("pid", "other")))
            os.replace(path, next(name for name in names if not _is_locked(name)))
        file = OwnFile(path)
        lock(file)
    return file


def _numbered(path: Path, name: str) -> Iterator[Path]:
    """Yield `last.NAME.dynx`, `last.NAME-2.dynx`, `last.NAME-3.dynx`, … for `last.dynx`."""
    for ending in itertools.chain([""], (f"-{number}" for number in itertools.count(2))):
        yield path.with_suffix(f".{name}{ending}{path.suffix}")


def _is_taken(path: Path, header: Mapping[str, Any]) -> bool:
    """Return whether `path` must not be overwritten: another process of this launch wrote it, or a live process has it open."""
    if not path.exists():
        return False
    written = read_header(path)
    same_job = "job" in written and written["job"] == header.get("job")
    return (same_job and written.get("pid") != header.get("pid")) or _is_locked(path)


def read_header(path: Path) -> dict[str, Any]:
    """Return the header (first line) of a run file; empty if `path` is not a run file."""
    try:
        with path.open("rb") as file:
            data = json.loads(file.readline(_MAX_HEADER))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) and "dynx_run" in data else {}


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return not _flock(file.fileno(), "LOCK_EX")
    except OSError:
        return False


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock `folder` while this process chooses a file name in it; do nothing if the file system has no locks."""
    if _fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX)
        except OSError:
            pass  # NFS locks no directory; the names of different ranks differ anyway
        yield
    finally:
        os.close(descriptor)


def _flock(descriptor: int, operation: str) -> bool:
    """Lock or unlock a file descriptor without waiting; return False if another open file holds the lock."""
    if _fcntl is None:
        return True
    try:
        _fcntl.flock(descriptor, getattr(_fcntl, operation) | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True
