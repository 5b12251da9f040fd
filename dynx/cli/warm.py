"""`WarmRun`: `dynx run --pgo FILE` starts the program with the saved profile (PGO), and updates the profile at the end."""

from __future__ import annotations

import sys
from pathlib import Path

from dynx.records.location import short_path


class WarmRun:
    """Context manager around `pgo.warm_start`: prints to stderr which functions have changed, and where the profile was saved.

    The constructor reads the profile, so that an unreadable file ends the command before the program starts.
    """

    def __init__(self, path: Path) -> None:
        from dynx.pgo import warm_start
        from dynx.pgo._apply import notice

        self._warm_start = warm_start(path)
        if text := notice(self._warm_start.matches):
            sys.stderr.write(f"dynx: {text}\n")

    def __enter__(self) -> WarmRun:
        return self

    def __exit__(self, *exc: object) -> None:
        self._warm_start.remove()
        learned, saved = self._warm_start.learned, self._warm_start.saved
        if learned is not None and saved is not None:
            functions = f"{len(learned.frames)} function{'s' if len(learned.frames) != 1 else ''}"
            sys.stderr.write(f"dynx: profile of {functions} saved: {short_path(str(saved))}\n")
