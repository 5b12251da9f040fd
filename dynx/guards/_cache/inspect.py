"""Look at torch's cache of a function, and take things out of it."""

from __future__ import annotations

from typing import Any, Self
from weakref import ref

from dynx._torch.cache import eviction, pinned
from dynx._torch.cache.entries import resumes_of
from dynx._torch.cache.entry import RawEntry
from dynx.errors import UsageError
from dynx.guards._cache.entries import raw_of, record_of
from dynx.guards._cache.owner import cache_owner
from dynx.guards._cache.target import codes_of, definition_of
from dynx.records import CacheReport, Entry


def inspect(fn: Any) -> CacheReport:
    """List what torch has compiled of a function, method or module: every version, with the tree of its guards.

    `fn` may be what was compiled or what torch.compile made of it. Oldest versions stand first, those of the rest of a function
    after a graph break behind the others. A guard's `location` is the line that torch remembers;
    `requesters` are all lines that asked for it, known where `dynx.watch()` or `guards.recompiles()` was open when it was
    compiled. Modules and decorated functions of torch's share code: of theirs those of the same class or function are listed.

    The records are plain data. `guards.evict` and `guards.pin` find the entry of a record as long as it is in the cache.
    Raises UsageError for what has no Python code.

    >>> import torch
    >>> from dynx import guards
    >>> f = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    >>> y = f(torch.ones(3), 2), f(torch.ones(3), 3)
    >>> [(each.id, [(g.source, g.expected) for g in each.guards if g.kind == "value"]) for each in guards.inspect(f).entries]
    [('0/0', [('n', '2')]), ('0/1', [('n', '3')])]
    """
    return CacheReport(definition_of(fn), tuple(map(record_of, cache_owner(fn).entries())))


def evict(entry: Entry) -> None:
    """Take one compiled version out of use; the next call that it would have fitted compiles again.

    torch goes on counting it towards the limit of recompiles until the function is reset. Waits for a moment in which no other
    thread is in a call of compiled code. Raises StaleEntry when it is gone, UsageError when no such moment comes, or from
    within a compilation.
    """
    raw = raw_of(entry)
    if raw.is_pinned:
        raise UsageError(f"{entry.id} of {entry.location} is pinned\n  call remove() of what guards.pin gave")
    eviction.invalidate(raw.guards, "evicted with dynx.guards.evict")


def reset(fn: Any) -> None:
    """Forget everything that torch compiled of one function, also that it gave the function up; others keep theirs.

    `torch._dynamo.reset()` for one function: its versions, those of its rests after graph breaks, the limits they reached. That
    crashes when another thread is in a call of the function; this waits for a moment in which none is in a call of compiled
    code, and raises UsageError when it does not come, or from within a compilation. Modules and decorated functions of torch's
    share code, which is reset for all of them.
    """
    eviction.reset(each for code in codes_of(fn) for each in (code, *resumes_of(code)))


def pin(entry: Entry, *, unsafe_ignore_backend: bool) -> Pin:
    """Keep one compiled version in front of all others, outside of the limit of recompiles, until the pin is removed.

    torch asks pinned versions first and **does not compare backends** for them: every torch.compile of this function, with
    whatever backend and configuration, runs this version when its guards hold. That must be asked for. Those **other versions
    of the function that are not pinned are forgotten**, which gives their room back. Gives a handle and context manager;
    `remove()` takes the version out of the cache.
    Raises StaleEntry when the entry is gone, UsageError without `unsafe_ignore_backend=True` and for what is pinned already.
    """
    if not unsafe_ignore_backend:
        raise UsageError(
            "torch can only pin a version for every backend at once\n"
            "  pass unsafe_ignore_backend=True where the function has one backend, or use dynx.compile(per_backend_limit=...)"
        )
    raw = raw_of(entry)
    if raw.is_pinned:
        raise UsageError(f"{entry.id} of {entry.location} is pinned already\n  use what guards.pin gave for it")
    pinned.pin(raw)
    return Pin(entry, raw)


class Pin:
    """A pinned version."""

    def __init__(self, entry: Entry, raw: RawEntry) -> None:
        self._entry, self._code, self._guards = entry, ref(raw.code), ref(raw.guards)

    def remove(self) -> None:
        code, guards = self._code(), self._guards()
        if code is not None and guards is not None:
            pinned.unpin(code, guards)

    def __repr__(self) -> str:
        return f"<Pin: {self._entry.id} of {self._entry.location}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
