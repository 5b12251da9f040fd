"""Count how often each cache entry is run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Self
from weakref import WeakKeyDictionary

from dynx._torch.cache import guard_tree
from dynx.guards._cache.on_compile import on_compiled
from dynx.guards._cache.owner import CacheOwner, cache_owner


class Counter:
    """Counts how often a guard was evaluated, and what of that were calls."""

    __slots__ = ("_otherwise", "_ticks", "tick")

    def __init__(self) -> None:
        self._ticks, self._otherwise = itertools.count(1), 0
        self.tick = partial(next, self._ticks)  # gives a number, which is true

    @property
    def calls(self) -> int:
        return self._evaluated() - self._otherwise

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        before = self._evaluated()
        try:
            yield
        finally:
            self._otherwise += self._evaluated() - before

    def _evaluated(self) -> int:
        """Read the count without moving it. CPython shows it as `count(5)`."""
        return int(repr(self._ticks)[6:-1]) - 1


_counters: WeakKeyDictionary[Any, Counter] = WeakKeyDictionary()  # of guard managers


def counted(guards: Any) -> int | None:
    """Give how often an entry was run since it was first counted; None if it never was."""
    counter = _counters.get(guards)
    return None if counter is None else counter.calls


def not_counting(guards: Any) -> AbstractContextManager[None]:
    """Let guards be evaluated otherwise than by a call."""
    counter = _counters.get(guards)
    return nullcontext() if counter is None else counter.not_counting()


def count_hits(fn: Any) -> HitCount:
    """Count how often each compiled version of a function is run, while the `with` block runs.

    Gives a mapping of compile ids to calls; what is compiled meanwhile is counted from its second call on, since the first ends
    in compiling. `fn` is a function, method or module, compiled or not. A counter is a guard that always holds, at the end of
    the entry's guards; torch cannot take guards away, so it stays until the entry goes, and costs each call less than 0.1 µs.
    Raises UsageError for what has no Python code.

    >>> import torch
    >>> from dynx import guards
    >>> f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    >>> y = f(torch.ones(3)), f(torch.ones(4))
    >>> with guards.count_hits(f) as hits:
    ...     for size in (3, 3, 4): y = f(torch.ones(size))
    >>> sorted(hits.values())
    [1, 2]
    """
    return HitCount(cache_owner(fn))


class HitCount(Mapping[str, int]):
    """Calls by compile id, counting until the block ends."""

    def __init__(self, owner: CacheOwner) -> None:
        self._owner = owner
        self._started: dict[str, tuple[Counter, int]] = {}  # and the calls before
        self._result: dict[str, int] | None = None
        self._handle: Any = None

    def __enter__(self) -> Self:
        for each in self._owner.entries():
            self._count(each.compile_id, each.guards)
        self._handle = on_compiled(self._owner, self._count, what="count_hits")
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
        self._result = self._now()

    def _count(self, compile_id: str, guards: Any) -> None:
        counter = _counters.get(guards)
        if counter is None:
            counter = _counters[guards] = Counter()
            guard_tree.add_last(guards, counter.tick, "counts hits")
        self._started[compile_id] = counter, counter.calls

    def _now(self) -> dict[str, int]:
        return {compile_id: counter.calls - before for compile_id, (counter, before) in self._started.items()}

    def _known(self) -> dict[str, int]:
        return self._result if self._result is not None else self._now()

    def __getitem__(self, compile_id: str) -> int:
        return self._known()[compile_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def __repr__(self) -> str:
        return f"HitCount({self._known()})"
