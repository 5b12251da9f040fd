"""Count how often each cache entry of torch.compile is run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from types import CodeType
from typing import Any, Self
from weakref import WeakKeyDictionary

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.cache import guard_tree
from dynx._torch.cache.entries import entries_of
from dynx.guards._cache.owner import CacheOwner, cache_owner, on_compiled


class Counter:
    """A counter of the calls that run one cache entry: a guard that always holds and counts its evaluations.

    Evaluations outside of calls, such as when `guards.profile` times the guards, are subtracted.
    """

    __slots__ = ("_outside_calls", "_ticks", "tick")

    def __init__(self) -> None:
        self._ticks, self._outside_calls = itertools.count(1), 0
        self.tick = partial(next, self._ticks)  # the guard: returns a positive number, so it always holds

    @property
    def calls(self) -> int:
        return self._evaluations() - self._outside_calls

    @contextmanager
    def paused(self) -> Iterator[None]:
        before = self._evaluations()
        try:
            yield
        finally:
            self._outside_calls += self._evaluations() - before

    def _evaluations(self) -> int:
        """Return the number of evaluations of the guard, read from the repr of `itertools.count`, which is `count(5)`."""
        return int(repr(self._ticks)[6:-1]) - 1


_counters: WeakKeyDictionary[Any, Counter] = WeakKeyDictionary()  # by guard manager


def hits_of(guards: Any) -> int | None:
    """Return how often calls have run the cache entry of a guard manager; None if `count_hits` was never used on the entry."""
    counter = _counters.get(guards)
    return None if counter is None else counter.calls


def not_counting(guards: Any) -> AbstractContextManager[None]:
    """Return a context manager in which evaluating the guards of a cache entry does not count as a hit."""
    counter = _counters.get(guards)
    return nullcontext() if counter is None else counter.paused()


@contextmanager
def not_counting_any(code: CodeType) -> Iterator[None]:
    """Return a context manager in which evaluating guards of any cache entry of a code object does not count as a hit."""
    with ExitStack() as stack:
        for entry in entries_of(code) if _counters else ():
            stack.enter_context(not_counting(entry.guards))
        yield


def count_hits(fn: Any) -> HitCount:
    """Return a context manager that counts how often calls run each cache entry of a callable inside the `with` block.

    An entry that is compiled inside the block is counted from its second call on: the call that compiles it is not a hit.

    A counter is a guard that always holds, at the end of the entry's guards. torch cannot remove guards, so the counter stays
    until the entry is freed; it costs each call less than 0.1 µs.

    Args:
        fn: A function, method or module, compiled or not.

    Returns:
        A context manager that is also a mapping from compile id (`"0/1"`) to number of calls; it can be read inside the block.

    Raises:
        UsageError: `fn` has no Python code.

    Example:
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


class HitCount(Handle, Mapping[str, int]):
    """A mapping from compile id to the number of calls that ran that cache entry while the `with` block was open."""

    def __init__(self, owner: CacheOwner) -> None:
        self._owner = owner
        self._starts: dict[str, tuple[Counter, int]] = {}  # counters, with what they had counted before the `with` block
        self._result: dict[str, int] | None = None
        self._subscription: hooks.Subscription | None = None

    def __enter__(self) -> Self:
        for entry in self._owner.entries():
            self._count(entry.compile_id, entry.guards)
        self._subscription = on_compiled(self._owner, self._count, what="count_hits")
        return self

    def remove(self) -> None:
        """Stop counting calls; the mapping keeps its numbers."""
        if self._subscription is not None:
            self._subscription.remove()
            self._subscription = None
            self._result = self._calls_so_far()

    def _count(self, compile_id: str, guards: Any) -> None:
        counter = _counters.get(guards)
        if counter is None:
            counter = _counters[guards] = Counter()
            guard_tree.add_last(guards, counter.tick, "counts hits")
        self._starts[compile_id] = counter, counter.calls

    def _calls_so_far(self) -> dict[str, int]:
        return {compile_id: counter.calls - before for compile_id, (counter, before) in self._starts.items()}

    def _calls(self) -> dict[str, int]:
        return self._result if self._result is not None else self._calls_so_far()

    def __getitem__(self, compile_id: str) -> int:
        return self._calls()[compile_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls())

    def __len__(self) -> int:
        return len(self._calls())

    def __repr__(self) -> str:
        return f"HitCount({self._calls()})"
