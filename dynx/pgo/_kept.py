"""`Kept`: begin a run with the profile in a file, and save what the run learned into it."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from dynx.errors import DynxError
from dynx.pgo._closures import stable_closure_hash
from dynx.pgo._record import record
from dynx.pgo._shared_file import load_all, update
from dynx.records.location import short_path


class Kept:
    """Context manager of `dynx run --pgo FILE`: begins with the profile in a file, and saves what the run learned into it.

    All ranks of a job may share the file. One that does not exist begins empty. If the file cannot be written, that is
    reported on stderr, and the program ends as it would without.

    Raises BadProfile and OSError if there is a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # the program may change directory
        self._profile = load_all(self._path)
        self._pid = os.getpid()
        self._stack = ExitStack()

    def __enter__(self) -> Kept:
        self._stack.enter_context(stable_closure_hash())
        with warnings.catch_warnings(record=True) as caught:  # not by the program's filters, which may raise
            warnings.simplefilter("always")
            self._stack.enter_context(self._profile.apply())
        for warning in caught:
            sys.stderr.write(f"dynx: {warning.message}\n")
        self._recorder = self._stack.enter_context(record())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            return  # a forked child: what it compiled is not that of the run
        try:
            learned, prunable = self._recorder.profile(), self._recorder.prunable()
            written = update(self._path, lambda profile: profile.merge(learned).prune(drop=prunable))
            functions = f"{len(learned.frames)} function{'s' if len(learned.frames) != 1 else ''}"
            sys.stderr.write(f"dynx: profile of {functions} saved: {short_path(str(written))}\n")
        except (OSError, DynxError) as failed:
            sys.stderr.write(f"dynx: the profile was not saved: {failed}\n")
        finally:
            self._stack.close()
