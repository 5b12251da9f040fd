"""`record`: record which values made each size dynamic, and which dynamic sizes every graph specialized to one value."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import replace

from dynx._handle import Handle
from dynx._reading.user_location import user_location, user_stacklevel
from dynx._torch.shapes.code_state import RawCodeId
from dynx._torch.shapes.size_updates import RawGraph, RawUpdate, SizeListener
from dynx._torch.shapes.symbol_facts import is_fixed
from dynx._trace.bus import listen
from dynx.errors import DynxWarning
from dynx.pgo._apply import applied
from dynx.pgo._cache_keys import CacheKeys
from dynx.pgo._explain import explained
from dynx.pgo._known_graphs import graph_of, needless, symbol_name
from dynx.pgo._match import described
from dynx.pgo._merge import join, join_frames, kept_graphs, with_seen
from dynx.pgo._profile import Profile
from dynx.records import CacheEvent, Location, Record
from dynx.records.cache_key import CacheKey, KeySettings
from dynx.records.profile import DYNAMIC, DynamicSizes, FrameProfile, Graph, ProfileData, PrunableSize, Seen, SourceProfile

Place = tuple[RawCodeId, str, int | None]  # function, source, dim


class Recorder(Handle):
    """Handle and context manager that records the values of sizes and numbers (int and float inputs) while torch compiles.

    Recorded values stay readable after `remove()`, and after `torch._dynamo.reset()`.
    """

    def __init__(self, run: str | None) -> None:
        self.run = run or f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        self._text = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {os.path.basename(sys.argv[0]) or 'python'}"
        self._sources: dict[tuple[RawCodeId, str], SourceProfile] = {}
        self._lines: dict[tuple[RawCodeId, str], Location | None] = {}
        self._pending: dict[str, list[RawUpdate]] = {}  # by compile id, until the compilation succeeds
        self._fixed: dict[Place, Location | None] = {}  # dynamic sizes that a graph specialized, and the line that did
        self._useful: set[Place] = set()  # dynamic sizes that a graph has as a symbol
        self._graphs: dict[RawCodeId, list[Graph]] = {}  # by the function that was called
        self._called: dict[RawCodeId, set[RawCodeId]] = {}  # by function: the compiled functions that include it
        self._begun_with = list(applied())  # applied profiles, including those applied later
        self._events: list[Record] = []
        self._listener = SizeListener(self._note, self._note_graph, _warn)
        self._cache_keys = CacheKeys(self._events.append)
        self._listening = listen(self._note_event, on_start=self._cache_keys.on_start)

    def remove(self) -> None:
        """Stop recording sizes and cache keys; what was recorded stays readable."""
        self._listening.remove()
        self._cache_keys.remove()
        self._listener.remove()

    @property
    def cache_keys(self) -> tuple[CacheKey, ...]:
        """The keys by which torch looked graphs up in its caches on disk, for `pgo.cachediff`."""
        return tuple(event for event in self._events if isinstance(event, CacheKey))

    @property
    def cache_settings(self) -> tuple[KeySettings, ...]:
        """The configuration of torch when it looked up each of `cache_keys`; equal configurations are listed once."""
        return tuple(event for event in self._events if isinstance(event, KeySettings))

    @property
    def caches(self) -> tuple[CacheEvent, ...]:
        """Hits, misses and bypasses of the caches on disk."""
        return tuple(event for event in self._events if isinstance(event, CacheEvent))

    def profile(self, *, prune: bool = True) -> Profile:
        """Return the profile of the recorded compilations, joined with the applied profiles.

        Args:
            prune: leave out the sizes in `prunable()`. If such a size stays dynamic, the next process may miss the caches on
                disk: although the size is specialized, symbol names can differ, or there is one more runtime assertion.
        """
        import torch

        frames: dict[RawCodeId, dict[str, SourceProfile]] = {code: {} for code in self._graphs}
        for (code, source), known in self._sources.items():
            frames.setdefault(code, {})[source] = known
        own = ProfileData(
            join_frames(described(self._frame(code, sources) for code, sources in frames.items())),
            {self.run: self._text},
            (str(torch.__version__),),
        )
        profile = Profile().merge(own, *(replace(handle.profile, frames=handle.frames) for handle in self._begun_with))
        return profile.prune(drop=self._prunable(profile)) if prune else profile

    def prunable(self) -> tuple[PrunableSize, ...]:
        """Return the dynamic sizes of the profile that every graph specialized to one value, each with the line that did so.

        A size is returned only if the next process can make it static without a new compilation: some recorded graph must have
        this size static, and must have every size dynamic that any graph keeps as a symbol.
        """
        return self._prunable(self.profile(prune=False))

    def explain(self, source: str | None = None, dim: int | None = None) -> DynamicSizes:
        """Return each dynamic size, int and float with the values that it had, and the run and compile id of each value.

        Args:
            source: report only this source: `L['x']`, or `x` for short. Default: all.
            dim: report only sizes of this dim. Default: all.
        """
        fixed = {(_key(code), name, size): line for (code, name, size), line in self._fixed.items()}
        lines = {(_key(code), name): line for (code, name), line in self._lines.items()}
        profile = self.profile(prune=False)
        return DynamicSizes(tuple(explained(profile, source, dim, lines, fixed)), profile.runs)

    def _prunable(self, profile: ProfileData) -> tuple[PrunableSize, ...]:
        frames = {frame.key: frame for frame in profile.frames}
        without = {key: needless(frame.graphs) for key, frame in frames.items() if frame.graphs}
        found = []
        for place, line in self._fixed.items():
            code, source, dim = place
            frame = frames.get(_key(code))
            known = frame.sources.get(source) if frame is not None else None
            if frame is None or known is None or place in self._useful or dict(known.dims()).get(dim) != DYNAMIC:
                continue
            if all((source, dim) in without.get(_key(caller), ()) for caller in self._called.get(code, ())):
                found.append(PrunableSize(frame, source, dim, line))
        return tuple(found)

    def _frame(self, code: RawCodeId, sources: dict[str, SourceProfile]) -> FrameProfile:
        graphs = kept_graphs(self._graphs.get(code, ()))
        return FrameProfile(code.file, code.file_hash, code.name, code.line, code.closure, sources=sources, graphs=graphs)

    def _note_event(self, record: Record) -> None:
        if isinstance(record, CacheEvent):
            self._events.append(record)

    def _note(self, update: RawUpdate) -> None:
        self._pending.setdefault(update.compile_id, []).append(update)

    def _keep(self, update: RawUpdate) -> None:
        self._begun_with.extend(handle for handle in applied() if handle not in self._begun_with)
        key = update.code, update.source
        self._lines.setdefault(key, user_location(update.stack))
        values = [
            Seen(dim, value, self.run, update.compile_id)
            for dim, value in update.now.dims()
            if value is not None and value != DYNAMIC
        ]
        self._sources[key] = with_seen(join(self._sources.get(key, SourceProfile()), update.now), values)

    def _note_graph(self, graph: RawGraph) -> None:
        updates = self._pending.pop(graph.compile_id, [])
        if graph.symbols is None:
            return  # torch, too, stores no profile of a compilation that failed
        for update in updates:
            self._keep(update)
        value_of = {source: symbol for symbol in graph.symbols for source in symbol.sources}
        dynamic = dict.fromkeys(  # the sizes and numbers that torch treated as dynamic, without duplicates
            (update.code, update.source, dim) for update in updates for dim, value in update.known.dims() if value == DYNAMIC
        )
        for place in dynamic:
            code, source, dim = place
            symbol = value_of.get(symbol_name(source, dim))
            if symbol is None:
                continue  # not in this graph: equal to another size, or not used
            if is_fixed(symbol):
                self._fixed.setdefault(place, user_location(symbol.stack) if symbol.stack else None)
                self._called.setdefault(code, set()).add(graph.code)
            else:
                self._useful.add(place)
        if sizes := graph_of((update for update in updates if update.attempt == graph.attempt), graph.symbols):
            self._graphs.setdefault(graph.code, []).append(sizes)


def record(run: str | None = None) -> Recorder:
    """Record, while torch compiles, which values make tensor sizes, ints and floats dynamic.

    Recording only observes: torch compiles the same graphs with and without it.

    Args:
        run: a name for this run in profiles; by default the time and the process id.

    Returns:
        A handle and context manager. `explain` returns the values that made a size dynamic, `prunable` the dynamic sizes that
        were specialized anyway, `profile` the profile to save for the next process.

    Raises:
        UnsupportedTorch: torch has no `torch._dynamo.pgo.update_automatic_dynamic`.

    Example:
        >>> import torch
        >>> from dynx import pgo
        >>> torch._dynamo.reset()
        >>> double = torch.compile(lambda x: x * 2, backend="eager")
        >>> with pgo.record(run="first") as recorder:
        ...     _ = double(torch.ones(4)), double(torch.ones(6))
        >>> [(size.source, size.dim, [seen.value for seen in size.seen]) for size in recorder.explain()]
        [("L['x']", 0, [4, 6])]
    """
    return Recorder(run)


def _key(code: RawCodeId) -> tuple[str, int, str, int | None]:
    """Return the `FrameProfile.key` of a function."""
    return code.file_hash, code.line, code.name, code.closure


def _warn(hook: str, error: BaseException) -> None:
    text = f"a size was not recorded ({hook}): {type(error).__name__}: {error}\n  run `dynx doctor` and report both"
    warnings.warn(text, DynxWarning, stacklevel=user_stacklevel())
