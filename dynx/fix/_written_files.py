"""Detect files that a program writes into its folder or the working directory: each trial would write them again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dynx.fix._program import Program

_MOST = 20_000  # files that are looked at
_OF_TOOLS = {"__pycache__", ".git", ".dynx", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def snapshot(program: Program) -> Mapping[str, tuple[int, int]]:
    """Return size and modification time of each file in the working directory and the folder of the program, by path."""
    found: dict[str, tuple[int, int]] = {}
    for folder in dict.fromkeys((Path.cwd(), *([Path(program.target).absolute().parent] if not program.option else []))):
        for place, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if name not in _OF_TOOLS]
            for name in names:
                if len(found) >= _MOST:
                    return found
                path = os.path.join(place, name)
                try:
                    state = os.stat(path)
                except OSError:
                    continue
                found[path] = state.st_size, state.st_mtime_ns
    return found


def written(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    """Return the files that were created, deleted or written between two snapshots."""
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))
