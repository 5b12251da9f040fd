"""`dynx.watch()`: record compilations, recompiles and graph breaks while a block, a function or a program runs."""

from __future__ import annotations

import functools
import inspect
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing.util import register_after_fork
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, get_args

from dynx._child_processes import ChildSettings, watch_children
from dynx._handle import Handle
from dynx._run import Run, RunMembers
from dynx._runfile.rank import job_in_environment, rank_in_environment
from dynx._runfile.writer import RunWriter
from dynx._trace.bus import listen
from dynx._trace.compile_details import CompileDetails
from dynx._trace.dispatch import FrameListener, emit
from dynx._trace.eager_times import EagerTimes
from dynx._trace.tree_skips import tree_skips
from dynx._trace.unguarded import UnguardedValues
from dynx._trace.uses import Uses
from dynx._version import __version__
from dynx._what_if.budget import SHARE
from dynx.autograd._observe import BackwardCaptures
from dynx.errors import DynxError
from dynx.records import Compile, CompileUse
from dynx.records.observed import Trouble
from dynx.records.record import Record

if TYPE_CHECKING:
    from dynx.comptime import Timeline

P = ParamSpec("P")
T = TypeVar("T")
Detail = Literal["normal", "full"]


def watch(*, out: str | Path | None = None, detail: Detail = "normal", what_if: bool = False, stale: bool = False) -> Watch:
    """Record what torch.compile does during a `with` block, or during each call of the decorated function.

    Graphs, guards, bytecode and results are the same with and without a watch. Watches nest; each records everything that is
    compiled while it is open, on every thread.

    Args:
        out: path of a run file, which grows while the program runs; None (the default) writes no file. A process that is rank
            3 of several writes `run.rank3.dynx` instead of `run.dynx`.
        detail: "normal", or "full", which adds the tracing cost of each line (`run.timeline`), the state of the trace at each
            graph break (`run.post_mortem`), the guards (`run.guards`) and the graph code (`run.graph_code`) of each
            compilation, what graphs save for backward (`run.saved`), and the keys of graphs in torch's caches on disk
            (`run.cache_keys`, for `pgo.cachediff`); "full" makes tracing up to a fifth slower.
        what_if: whether to try the fixes of findings while the program runs: when a function recompiles, its call is traced
            once more with each fix, without running it, for a tenth of the compile time and half a second
            (`run.what_ifs`). A fix that is proven to help is the first in the advice of its finding, and one that is proven not
            to help is not advised.
        stale: whether to find values that change while compiled code keeps the old ones, because no guard watches them
            (`run.stale_values`, and what else such code reads in `run.unguarded`). The values are read again before calls of
            compiled functions, for 0.05 s and 1 % of the time. A call that ran the old code counts only if the value
            differed while its guards were evaluated; for that, a guard that always holds is added to the cache entry.

    Returns:
        A context manager and decorator with the members of `dynx.Run`, up to date at each access. For a decorated
        function, `function.dynx.run` is the run of its most recent call.

    Raises:
        DynxError: `detail` is unknown, or a watch is entered twice.

    Example:
        >>> import torch, dynx
        >>> f = torch.compile(lambda x: x + 1, backend="eager")
        >>> with dynx.watch() as w:
        ...     y = f(torch.ones(3)); y = f(torch.ones(4))
        >>> w.recompiles[0].reasons[0].expected, w.recompiles[0].reasons[0].got
        ('3', '4')
    """
    if detail not in get_args(Detail):
        raise DynxError(f'watch(detail={detail!r}): unknown level of detail\n  valid choices: "normal", "full"')
    return Watch(None if out is None else Path(out), detail=detail, what_if=SHARE if what_if else None, stale=stale)


class Watch(RunMembers):
    """Context manager and function decorator that `dynx.watch` returns.

    Has the members of `dynx.Run`, computed at each access from what has been recorded so far.
    """

    def __init__(
        self,
        out: Path | None = None,
        *,
        detail: Detail = "normal",
        what_if: float | None = None,
        stale: bool = False,
        command: Sequence[str] | None = None,
        started_by: Mapping[str, Any] | None = None,
    ) -> None:
        self._out = out
        self._detail: Detail = detail
        self._what_if = what_if  # share of the compile time; None to try no fixes
        self._stale = stale
        self._command = command
        self._started_by = started_by  # header fields about the parent process, in a child process
        self._events: list[Record] = []
        self._header: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        self._writer: RunWriter | None = None
        self._is_open = False
        self._handles: list[Handle] = []  # of all that is open, in the order in which it is closed
        self._timeline: Timeline | None = None
        self._uses: Uses | None = None
        self._eager_times = EagerTimes()
        self._started = 0.0

    @property
    def path(self) -> Path | None:
        """Path of the run file, with the rank of this process in its name in a distributed job; None without `out`."""
        return self._writer.path if self._writer is not None else None

    @property
    def is_saved(self) -> bool:
        """Whether the run file is complete; False while the watch is open, without `out`, and after a failed write."""
        return self._writer is not None and self._writer.is_complete

    @property
    def run(self) -> Run:
        """The records so far, as an immutable `dynx.Run`."""
        return Run(self.events, self.header, self.end)

    @property
    def events(self) -> tuple[Record, ...]:
        """All records so far, in the order in which they were recorded."""
        return tuple(self._events)

    @property
    def header(self) -> Mapping[str, Any]:
        """Command, process id, versions of torch and Python, and similar fields; empty before the watch is entered."""
        return dict(self._header)

    @property
    def end(self) -> Mapping[str, Any]:
        """Duration in seconds, outcome (such as "finished") and device; empty until the watch is closed."""
        return dict(self._end)

    @property
    def problems(self) -> tuple[str, ...]:
        """Always empty: only a `dynx.Run` that was loaded from a file has lines that could not be read."""
        return ()

    @property
    def unknown(self) -> Sequence[Mapping[str, Any]]:
        """Always empty: only a `dynx.Run` that was loaded from a file has records of a newer dynx version."""
        return ()

    def _frozen(self) -> Run:
        return self.run

    def __enter__(self) -> Watch:
        if self._is_open:
            raise DynxError(
                "this dynx.watch() is already open\n  create another watch for the nested block: with dynx.watch() as inner:"
            )
        self._events, self._end = [], {}
        self._header = _header(self._command, self._started_by)
        self._writer = RunWriter(self._out, self._header) if self._out is not None else None
        self._started = time.perf_counter()
        if self._detail == "full":
            from dynx.comptime import PostMortem, Timeline
            from dynx.pgo import CacheKeys
            from dynx.saved import SavedGraphs

            details, keys = CompileDetails(self._record), CacheKeys(self._record)
            listening = listen(self._record, on_start=keys.on_start, on_end=details.on_end, on_frame=self._on_frame())
            saved = SavedGraphs(lambda graph: None)  # adds the graphs to the compile records
            self._timeline, post_mortem = Timeline().__enter__(), PostMortem().__enter__()
            self._handles = [self._timeline, post_mortem, listening, details, keys, saved]
        else:
            self._handles = [listen(self._record, on_frame=self._on_frame())]
        self._handles += [tree_skips(self._record), BackwardCaptures(self._record)]
        if self._stale:
            self._handles.append(UnguardedValues(self._record))
        self._is_open, self._uses, self._eager_times = True, Uses(), EagerTimes()
        if self._out is not None:
            self._handles.append(watch_children(self._child_settings, _unwatched_child))
            register_after_fork(self, _close_at_exit_of_child)  # called only in child processes that multiprocessing forks
        return self

    def _on_frame(self) -> FrameListener | None:
        if self._what_if is None:
            return None
        from dynx._what_if.listener import WhatIfs

        return WhatIfs(self._record, lambda: self._events, self._what_if).on_frame

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close(outcome="finished" if error is None else f"raised {type(error).__name__}")

    def close(self, *, outcome: str) -> None:
        """Stop recording and complete the run file with `outcome`, such as "finished"; calling it again does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._record_uses()
        self._eager_times.remove()
        for record in self._eager_times.records:
            self._record(record)
        self._end = {"seconds": time.perf_counter() - self._started, "outcome": outcome, "device": _device()}
        if self._writer is not None:
            self._writer.end(self._end)

    def _record_uses(self) -> None:
        """Explain a run that compiled nothing: record how the program used torch.compile.

        `dynx run` also records that torch.compile was not used at all; a watch in a `with` block does not.
        """
        if self._uses is None:
            return
        self._uses.remove()
        use, self._uses = self._uses.record, None
        is_compiled = any(isinstance(record, Compile) and record.outcome != "skipped" for record in self._events)
        if use is not None and not is_compiled and (self._command is not None or use != CompileUse(0)):
            self._record(use)

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Decorate `fn` so that each call is recorded as a run of its own; each call overwrites the run file."""
        if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
            raise DynxError(
                f"watch() cannot decorate {fn.__qualname__}, a generator or coroutine function:"
                " its body runs after the call returns\n"
                "  open the watch inside the function instead: with dynx.watch() as w:"
            )

        @functools.wraps(fn)
        def watched(*args: P.args, **kwargs: P.kwargs) -> T:
            watch = Watch(self._out, detail=self._detail, what_if=self._what_if, stale=self._stale)
            try:
                with watch:
                    return fn(*args, **kwargs)
            finally:
                watched.dynx = watch  # type: ignore[attr-defined]

        watched.dynx = Watch(self._out, detail=self._detail, what_if=self._what_if, stale=self._stale)  # type: ignore[attr-defined]
        return watched

    def _close_in_child(self) -> None:
        if self._writer is not None and self._writer.is_in_use():
            self.close(outcome=outcome_of(sys.exception()))  # an exception may be propagating out of the child's function

    def _child_settings(self) -> ChildSettings:
        """Return the settings that a child process needs to write its own run file, next to the run file of this process."""
        assert self._writer is not None
        header = self._writer.header
        ranks = {name: header[name] for name in ("rank", "world_size", "restart") if name in header}
        return ChildSettings(
            out=os.path.abspath(self._writer.child_path),
            command=tuple(header["command"]),
            detail=self._detail,
            started_by={"parent": os.getpid(), "job": header["job"], **ranks},
        )

    def _record(self, record: Record) -> None:
        self._events.append(record)
        self._eager_times.see(record)
        if self._writer is not None:
            self._writer.write(record)
        if self._timeline is not None and isinstance(record, Compile):
            for cost in self._timeline.take(record.id):
                self._record(cost)

    def __repr__(self) -> str:
        state = "open" if self._is_open else "done" if self._end else "not entered"
        return f"<Watch {state}: {self.run!r}>"


def watch_child_process(out: str, command: Sequence[str], detail: Detail, started_by: Mapping[str, Any]) -> None:
    """Start a watch in a process that a watched process spawned; the watch closes when multiprocessing ends this process."""
    watch = Watch(Path(out), detail=detail, command=command, started_by=started_by)
    watch.__enter__()
    _close_at_exit_of_child(watch)


def _close_at_exit_of_child(watch: Watch) -> None:
    """Register the watch to be closed when multiprocessing ends this child process, where `atexit` handlers do not run."""
    from multiprocessing.util import Finalize

    Finalize(None, watch._close_in_child, exitpriority=0)


def outcome_of(error: BaseException | None) -> str:
    """Describe how a program ended, given its uncaught exception: "finished", "exit 3" or "raised ValueError"."""
    if error is None:
        return "finished"
    if not isinstance(error, SystemExit):
        return f"raised {type(error).__name__}"
    code = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
    return f"exit {code}"


def _unwatched_child(hook: str, error: BaseException) -> None:
    emit(Trouble("a child process that runs unwatched", f"{type(error).__name__}: {error}"))


def _header(command: Sequence[str] | None, started_by: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the header of a run: versions, command, process and job ids, and the rank or the id of the parent process.

    A child process gets `started_by`, the fields that describe its parent process, instead of a rank from the environment.
    """
    import torch

    own_rank = rank_in_environment() if started_by is None else None
    return {
        "dynx": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command) if command is not None else [Path(sys.argv[0]).name if sys.argv else ""],
        "pid": os.getpid(),
        "job": job_in_environment() or uuid.uuid4().hex,
        **(own_rank.header() if own_rank is not None and own_rank.world_size > 1 else {}),
        **(started_by or {}),
    }


def _device() -> str:
    """Return the name of the GPU if the program has initialized CUDA, else "cpu"."""
    torch = sys.modules["torch"]
    return str(torch.cuda.get_device_name()) if torch.cuda.is_initialized() else "cpu"
