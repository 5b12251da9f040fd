"""Find and show the run files of the child processes (ranks, spawned workers) that a watched program started."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynx._runfile.rank import read_header
from dynx.errors import BadRunFile, DynxWarning

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dynx._run import Run


def report(run: Run, path: Path | None, *, full: bool, top: int | None = None) -> RenderableType:
    """Render the report of a run, followed by one line for each child process that the watched program started.

    Child processes are found by `path`, the run file; with None, they are left out. For a launcher that compiles nothing, such
    as torchrun, only the lines of child processes are rendered, unless `full`. `top` limits the number of findings.
    """
    from rich.console import Group

    from dynx.report import processes, terminal

    children = find_children(path, run.header) if path is not None else []
    file = path if path is not None and path.is_file() else None
    if not children:
        return terminal(run, full=full, top=top, file=file)
    if not run.compiles and not full and any(child.compiles for _, child in children):
        return processes(children, launcher=run)
    return Group(terminal(run, full=full, top=top, file=file), processes(children))


def find_children(path: Path, header: Mapping[str, Any]) -> list[tuple[Path, Run]]:
    """Load the run files of the child processes of the run at `path`, sorted by rank; processes without a rank come last.

    Files of other runs in the same folder are ignored: their job is not the one in `header`.
    """
    from dynx._run import Run

    children = []
    for file in path.parent.glob(f"{glob.escape(path.stem)}.*{glob.escape(path.suffix)}"):
        written = read_header(file)
        if "job" not in header or written.get("job") != header["job"] or "parent" not in written:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DynxWarning)  # a killed process may leave half a line: `dynx show` reports it
                children.append((file, Run.load(file)))
        except (BadRunFile, OSError):
            continue
    return sorted(children, key=lambda child: _order(*child))


def _order(path: Path, run: Run) -> tuple[int, str, str]:
    rank = run.header.get("rank")
    return (rank if isinstance(rank, int) else 2**63), str(run.header.get("started", "")), path.name
