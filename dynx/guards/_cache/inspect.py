"""List the cache entries of a callable, and remove or pin them."""

from __future__ import annotations

from typing import Any
from weakref import ref

from dynx._handle import Handle
from dynx._torch.cache import eviction, pinned
from dynx._torch.cache.entries import compiled_codes, resumes_of, with_resume_functions
from dynx._torch.cache.entry import RawEntry
from dynx._torch.compilation.frame import resumed_at, user_name
from dynx._torch.compilation.wrappers import is_shared
from dynx.errors import UsageError
from dynx.guards._cache.entries import raw_of, record_of
from dynx.guards._cache.owner import cache_owner
from dynx.guards._cache.target import codes_of, definition_of, location_of
from dynx.records import CacheReport, Entry


def inspect(fn: Any) -> CacheReport:
    """List every cache entry of a callable, with the tree of its guards.

    Entries of the function come first, then those of its resume functions, oldest first. torch runs built-in modules, callable
    objects and some decorated functions through one wrapper, whose code object has the entries of all of them; for such an
    `fn`, only the entries for its class or function are listed.

    The records are plain data. A guard's `location` is a line that requested it; torch keeps only one such line. `requesters`
    are all lines that requested it, known only for code that was compiled inside `dynx.watch()`.

    Args:
        fn: A function, method or module, compiled or not.

    Returns:
        A report with `location` and `entries`; pass an entry to `guards.evict` or `guards.pin` as long as it is in the cache.

    Raises:
        UsageError: `fn` has no Python code.

    Example:
        >>> import torch
        >>> from dynx import guards
        >>> f = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
        >>> y = f(torch.ones(3), 2), f(torch.ones(3), 3)
        >>> for entry in guards.inspect(f).entries:
        ...     print([(guard.source, guard.expected) for guard in entry.guards if guard.kind == "value"])
        [('n', '2')]
        [('n', '3')]
    """
    return CacheReport(definition_of(fn), tuple(map(record_of, cache_owner(fn).entries())))


def inspect_named(target: Any, name: str, program: str) -> CacheReport:
    """List the cache entries of the function with the qualified name `name`, and of its resume functions.

    `target` is the function or module; None for a nested function, of which only the name is known. Raises UsageError if
    `target` has no Python code, or is None and no function of this name was compiled; then the message names the `program`.
    """
    # without resume functions, and the wrapper in which torch calls modules
    codes = [code for code in compiled_codes() if resumed_at(code) is None and not is_shared(code)]
    compiled = {user_name(code.co_qualname): code for code in codes}
    if target is not None and (callable(target) or name not in compiled):
        return inspect(target)
    if name in compiled:
        code = compiled[name]
        return CacheReport(location_of(code), tuple(map(record_of, with_resume_functions([code]))))
    choices = f"compiled functions: {', '.join(compiled)}" if compiled else "the program compiled nothing"
    raise UsageError(f"{program} has compiled no function {name}\n  {choices}")


def evict(entry: Entry) -> None:
    """Remove one cache entry; the next call that would have run this entry compiles again.

    Waits until no other thread is in a call of compiled code, and may delay calls that other threads begin. torch counts the
    entry towards the recompile limit until `guards.reset`.

    Args:
        entry: A record from `guards.inspect`.

    Raises:
        StaleEntry: The entry is not in the cache any more.
        UsageError: The entry is pinned, `entry` is not an `Entry`, another thread stayed in compiled code for half a minute,
            there are more than 100 threads, or this thread is compiling.
    """
    raw = raw_of(entry)
    if raw.is_pinned:
        raise UsageError(
            f"cannot evict cache entry {entry.id} of {entry.location}: it is pinned\n"
            "  call remove() of the handle that guards.pin returned"
        )
    eviction.invalidate(raw.guards, "evicted with dynx.guards.evict")


def reset(fn: Any) -> None:
    """Remove all cache entries of one callable and let it compile again, even if it has reached a recompile limit.

    Also resets its resume functions. `torch._dynamo.reset()` resets all functions, and may crash if another thread is in a call
    of compiled code; `guards.reset` waits as `guards.evict` does. If `fn` shares the code object of a wrapper in torch with
    other callables (see `guards.inspect`), all of them are reset.

    Args:
        fn: A function, method or module, compiled or not.

    Raises:
        UsageError: `fn` has no Python code, another thread stayed in compiled code for half a minute, there are more than 100
            threads, or this thread is compiling.
    """
    eviction.reset(code for original in codes_of(fn) for code in (original, *resumes_of(original)))


def pin(entry: Entry, *, unsafe_ignore_backend: bool = False) -> Pin:
    """Make torch check one cache entry before all others, and not count it towards the recompile limit, until `remove()`.

    torch checks pinned entries first and **does not compare backends** for them: every torch.compile of this function, with any
    backend and configuration, runs this entry when its guards hold. Pinning **removes all entries of the function that are not
    pinned**, which also resets its count of recompiles.

    Args:
        entry: A record from `guards.inspect`.
        unsafe_ignore_backend: Must be True, to accept that the entry also runs for other backends.

    Returns:
        A handle and context manager; `remove()` removes the entry from the cache.

    Raises:
        StaleEntry: The entry is not in the cache any more.
        UsageError: `unsafe_ignore_backend` is not True, the entry is already pinned, or other threads prevent it
            as in `guards.evict`.
    """
    if not unsafe_ignore_backend:
        raise UsageError(
            "torch does not compare the backend of a pinned cache entry: calls with any backend would run it\n"
            "  pass unsafe_ignore_backend=True if the function has one backend; else use dynx.compile(per_backend_limit=...)"
        )
    raw = raw_of(entry)
    if raw.is_pinned:
        raise UsageError(
            f"cache entry {entry.id} of {entry.location} is already pinned\n  use the handle that guards.pin returned for it"
        )
    pinned.pin(raw)
    return Pin(entry, raw)


class Pin(Handle):
    """The handle of a cache entry that `guards.pin` has pinned; `remove()` removes the entry from the cache."""

    def __init__(self, entry: Entry, raw: RawEntry) -> None:
        self._entry, self._code, self._guards = entry, ref(raw.code), ref(raw.guards)

    def remove(self) -> None:
        """Unpin the cache entry and evict it; raises UsageError as `guards.evict` does."""
        code, guards = self._code(), self._guards()
        if code is not None and guards is not None:
            pinned.unpin(code, guards)

    def __repr__(self) -> str:
        return f"<Pin: {self._entry.id} of {self._entry.location}>"
