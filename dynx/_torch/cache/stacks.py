"""`Stacks`: the stacks of all threads as text, read without creating frame objects."""

from __future__ import annotations

import faulthandler
import os
from mmap import mmap
from tempfile import TemporaryFile

_BUFFER = 1 << 22  # bytes: the stacks of a hundred threads with a hundred frames each


class Stacks:
    """The stacks of all threads as text, written to a file by `faulthandler`.

    The file is read through `mmap`, because reading it otherwise would release the GIL. `sys._current_frames()` would create
    frame objects, which is not safe for the frames that torch runs.
    """

    def __enter__(self) -> Stacks:
        self._file = TemporaryFile()
        self._file.truncate(_BUFFER)
        self._memory = mmap(self._file.fileno(), _BUFFER)
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self._file.close()

    def read(self) -> bytes:
        """Return the current stacks of all threads."""
        written = os.lseek(self._file.fileno(), 0, os.SEEK_CUR)
        self._memory[: min(written, _BUFFER)] = bytes(min(written, _BUFFER))
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        faulthandler.dump_traceback(self._file.fileno(), all_threads=True)
        return self._memory[: self._memory.find(b"\0")]
