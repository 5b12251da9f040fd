"""`warm_start`: start a process with the profile that earlier processes saved, and save what this process learns."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from dynx._handle import Handle
from dynx.errors import DynxError
from dynx.pgo._apply import applied_without_notice
from dynx.pgo._closures import stable_closure_hash
from dynx.pgo._profile import Profile
from dynx.pgo._record import record
from dynx.pgo._shared_file import load_all, update
from dynx.records.profile import FrameMatch
from dynx.symbols import install
from dynx.symbols._install import active


class WarmStart(Handle):
    """Handle of a warm start: `remove()` saves the profile, and is called at interpreter exit if it was not called before.

    `matches` lists which functions of the profile are in the current source files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # the program may change directory
        profile = load_all(self._path)
        self._pid = os.getpid()
        with ExitStack() as stack:  # undoes earlier steps if a later step fails
            if active() is None:
                stack.enter_context(install())
            stack.enter_context(stable_closure_hash())
            self._applied = stack.enter_context(applied_without_notice(profile))
            self._recorder = stack.enter_context(record())
            self._stack = stack.pop_all()
        self.learned: Profile | None = None  # the profile of this process, once it is saved
        self.saved: Path | None = None
        atexit.register(self.remove)

    @property
    def matches(self) -> tuple[FrameMatch, ...]:
        """The state of each function of the profile in the current source files ("same", "moved" …), see `Profile.verify`."""
        return self._applied.matches

    def remove(self) -> None:
        """Save what was learned into the file, and stop using the profile from the next `torch._dynamo.reset()` on.

        If the file cannot be written, an error is reported on stderr, and the program continues.
        """
        atexit.unregister(self.remove)
        stack, self._stack = self._stack, ExitStack()
        with stack:
            if self.saved is None and os.getpid() == self._pid:  # forked children do not belong to the run
                self._save()

    def _save(self) -> None:
        try:
            learned, prunable = self._recorder.profile(), self._recorder.prunable()
            replaced = self._applied.replaced
            self.saved = update(self._path, lambda saved: saved.without(replaced).merge(learned).prune(drop=prunable))
            self.learned = learned
        except (OSError, DynxError) as failed:
            sys.stderr.write(f"dynx: the profile was not saved: {failed}\n")

    def __repr__(self) -> str:
        state = f"saved in {self.saved}" if self.saved is not None else f"from {self._path}"
        return f"<warm start, {state}: {len(self.matches)} functions>"


def warm_start(path: str | os.PathLike[str]) -> WarmStart:
    """Apply the profile in a file, name symbols by their source, and save what this process learns into the file.

    A process that runs every day then finds its graphs in torch's caches on disk: the same sizes are dynamic from the start
    (`Profile.apply`), and symbols have the same names (`symbols.install`). Call it before the first compilation. `dynx run
    --pgo profile.json` does the same without a change of the program.

    All ranks of a job may share the file; a missing file counts as an empty profile. Since symbols get other names,
    the first process with a warm start misses the caches. A naming scheme that `symbols.install` set before stays in use.

    Args:
        path: the profile, in a folder that exists.

    Returns:
        A handle and context manager. The profile is saved at the end of the block, by `remove()`, or when the interpreter
        exits.

    Raises:
        BadProfile: the file is not a profile; it is left unchanged.
        OSError: the file cannot be read, or its folder does not exist.
        UsageError: torch has already compiled a function.
        UnsupportedTorch: torch has no `torch._dynamo.pgo`, or no `ShapeEnv._generate_unique_id`.

    Example:
        >>> import os, tempfile, torch
        >>> from dynx import pgo
        >>> path = os.path.join(tempfile.mkdtemp(), "profile.json")
        >>> graphs = []
        >>> def backend(graph_module, example_inputs):
        ...     graphs.append(graph_module)
        ...     return graph_module
        >>> def day():
        ...     torch._dynamo.reset()  # as in a process of its own
        ...     with pgo.warm_start(path):
        ...         double = torch.compile(lambda x: x * 2, backend=backend)
        ...         _ = double(torch.ones(4)), double(torch.ones(6))
        ...     return len(graphs)
        >>> day(), day()
        (2, 3)
    """
    return WarmStart(Path(path))
