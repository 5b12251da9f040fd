"""`cachediff`: explain why the graphs of one run are not found under the cache keys of another run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dynx._run import Run
from dynx.advice.facts.graph_change import lines_apart
from dynx.advice.facts.key_causes import causes_of
from dynx.pgo._lookups import HasCacheKeys, digest, function_of, lookups, of_function
from dynx.records import CacheEvent, Location
from dynx.records.cache_key import CacheCause, CacheDiff, CacheKey

_KINDS = (  # causes before their consequences
    "system", "setting", "state",
    "dynamic size", "symbol name", "runtime assert", "input", "graph",
    "entry", "bypass", "new graph",
)  # fmt: skip
_NOT_ENDED = "the first run was killed or is not over: let it end, so that it stores its graphs"
_BYPASSED = {"fx_graph": ("FX graph cache", "DX401"), "aot_autograd": ("AOTAutograd cache", "DX402")}
_NO_REASON = "torch gives no reason"
_MAX_CANDIDATES = 8  # graphs of one function that are compared in full
_NO_KEYS = """has no keys of graphs
  record both runs with `dynx run --detail full` or dynx.watch(detail="full"), with the backend inductor and its caches on"""


def cachediff(a: HasCacheKeys | str | Path, b: HasCacheKeys | str | Path) -> CacheDiff:
    """Explain why graphs of run `b` miss the caches that run `a` filled, by comparing their cache keys.

    Works without torch, on run files. A graph that the caches reported as a hit is not a miss, whichever run stored it. For
    other graphs, keys are compared part by part: torch's build, its configuration option by option, global state, inputs, names
    of symbols, and the graph line by line. A difference that is a consequence of another difference is omitted.

    Args:
        a: the first run, which filled the caches: a run or a watch with `detail="full"`, its run file, or the recorder that
            `pgo.record()` returned.
        b: the second run, which missed the caches.

    Returns:
        The causes, each with its values in `a` and in `b`, the line, and advice; equal causes of several graphs are merged. The
        result is false if no graph of `b` missed or bypassed the caches.

    Raises:
        BadRunFile: a file is not a run file.
        OSError: a file cannot be read.

    Example:
        >>> import os, tempfile, torch
        >>> from unittest import mock
        >>> from dynx import pgo
        >>> def recorded(x):
        ...     torch._dynamo.reset()
        ...     with pgo.record() as recorder:
        ...         _ = torch.compile(lambda x: x @ x)(x)
        ...     return recorder
        >>> with mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=tempfile.mkdtemp()):  # an empty cache
        ...     first, second = recorded(torch.ones(4, 4)), recorded(torch.ones(4, 4).double())
        >>> for cause in pgo.cachediff(first, second):
        ...     print(cause.kind, cause.component, cause.before, cause.after)
        input x.dtype torch.float32 torch.float64
    """
    first, second = _side(a), _side(b)
    comparison = _Comparison(first, second)
    if second.cache_keys or not comparison.bypassed:  # a run whose graphs all bypassed the caches has no keys
        for name, side in (("first", first), ("second", second)):
            if not side.cache_keys:
                return CacheDiff(problem=f"the {name} run {_NO_KEYS}")
    return comparison.result()


def _side(run: HasCacheKeys | str | Path) -> HasCacheKeys:
    return Run.load(run) if isinstance(run, (str, Path)) else run


@dataclass
class _Comparison:
    first: HasCacheKeys
    second: HasCacheKeys

    def __post_init__(self) -> None:
        self._settings = {one.digest: one.values for side in (self.first, self.second) for one in side.cache_settings}
        self._known = {digest(key): key for key in self.first.cache_keys}
        self._found_again = {digest(key) for key in self.second.cache_keys} & self._known.keys()

    def result(self) -> CacheDiff:
        causes: list[CacheCause] = []
        same = different = elsewhere = 0
        for compilation in lookups(self.second):
            known = [one for one in compilation if digest(one.key) in self._known]
            others = [one.key for one in compilation if one not in known and not one.is_hit]
            same, different = same + len(known), different + len(others)
            elsewhere += len(compilation) - len(known) - len(others)
            # the first key is that of the AOTAutograd cache; the graph of the FX graph cache is made from its graph
            if others:
                causes += self._causes(others[0])
            else:
                causes += map(self._lost, [one.key for one in known if one.is_hit is False][:1])
        causes += map(self._bypassed, self.bypassed)
        return CacheDiff(tuple(_merged(causes)), same, different, elsewhere)

    @property
    def bypassed(self) -> list[CacheEvent]:
        return [event for event in self.second.caches if event.result == "bypass"]

    def _causes(self, key: CacheKey) -> tuple[CacheCause, ...]:
        """Return why a key missed: how it differs from the most similar key of the first run, or why there is no such key."""
        similar = [other for other in self.first.cache_keys if (other.cache, other.is_backward) == (key.cache, key.is_backward)]
        candidates = [other for other in similar if function_of(other.location) == function_of(key.location)]
        if not candidates and (bypass := self._bypass_in_first(key.cache, key.location)):
            return (self._not_stored(key, bypass),)
        candidates = candidates or [other for other in similar if other.parts.get("gm") == key.parts.get("gm")]
        candidates = sorted(candidates, key=lambda other: len(dict(other.parts.items() ^ key.parts.items())))[:_MAX_CANDIDATES]
        new = [other for other in candidates if digest(other) not in self._found_again]
        explained = []
        for other in new or candidates:
            causes = tuple(causes_of(other, key, self._settings.get(other.settings), self._settings.get(key.settings)))
            explained.append((_weight(causes) + lines_apart(other.graph, key.graph), causes))
        return min(explained, key=lambda one: one[0], default=(0, (self._new_graph(key),)))[1]

    @property
    def _has_ended(self) -> bool:
        return not isinstance(self.first, Run) or self.first.is_complete

    def _lost(self, key: CacheKey) -> CacheCause:
        """Return the cause of a miss in the second run for a key that the first run looked up too."""
        before = self._known[digest(key)]
        if key.directory != before.directory:
            advice = "set TORCHINDUCTOR_CACHE_DIR to the same directory in both runs"
            return CacheCause("entry", "cache directory", before.directory, key.directory, key.location, advice)
        advice = "keep the directory of the caches between the runs" if self._has_ended else _NOT_ENDED
        return CacheCause("entry", "entry of the same key", "looked up", "not in the cache", key.location, advice)

    def _new_graph(self, key: CacheKey) -> CacheCause:
        name = key.location.function if key.location is not None else "the function"
        advice = "let the first run compile this function too, on the same inputs" if self._has_ended else _NOT_ENDED
        return CacheCause("new graph", f"graph of {name}", "no key", "looked up", key.location, advice)

    def _bypass_in_first(self, cache: str, location: Location | None) -> CacheEvent | None:
        events = of_function(self.first.caches, cache, location)
        return next((event for event in events if event.result == "bypass"), None)

    def _not_stored(self, key: CacheKey, bypass: CacheEvent) -> CacheCause:
        """Return the cause of a miss of the second run, for a graph that bypassed the cache in the first run."""
        cache, rule = _BYPASSED[key.cache]
        reason, advice = bypass.reason or _NO_REASON, f"the first run could not store it: see `dynx rule {rule}`"
        return CacheCause("bypass", cache, reason, "looked up", key.location, advice, rule)

    def _bypassed(self, event: CacheEvent) -> CacheCause:
        """Return why a graph of the second run bypassed a cache, and what the first run reported for the same function."""
        cache, rule = _BYPASSED[event.cache]
        before = self._bypass_in_first(event.cache, event.location)
        if before is not None:
            reason = before.reason or _NO_REASON
        else:
            reason = "looked up" if of_function(self.first.caches, event.cache, event.location) else "not reported"
        advice = f"see `dynx rule {rule}`"
        return CacheCause("bypass", cache, reason, event.reason or _NO_REASON, event.location, advice, rule, event.count)


def _weight(causes: tuple[CacheCause, ...]) -> int:
    """Return a number for how much two keys differ, from the causes of the difference; names of symbols count least."""
    return sum(1 if cause.kind == "symbol name" else 3 for cause in causes)


def _merged(causes: Iterable[CacheCause]) -> list[CacheCause]:
    merged: dict[tuple[str, ...], CacheCause] = {}
    for cause in causes:
        key = cause.kind, cause.component, cause.before, cause.after
        merged[key] = replace(merged[key], count=merged[key].count + 1) if key in merged else cause
    return sorted(merged.values(), key=lambda cause: _KINDS.index(cause.kind))
