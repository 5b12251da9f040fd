"""Copy functions with `functools.lru_cache`, including the contents of their caches."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

from dynx._reading.owner import owner_of_code

CACHED = functools._lru_cache_wrapper


class _Entry(NamedTuple):
    """A cached call: its arguments and its result."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


def copy_cached_function(value: Any, copy: Callable[[Any], Any]) -> Any:
    """Return a copy of an `lru_cache` function, with copies of its cached results; return a library's function unchanged.

    `__wrapped__` of the copy is the original function, because torch traces `__wrapped__` and ignores the cache.
    """
    function = value.__wrapped__
    inner = copy(function)
    if type(function) is FunctionType and owner_of_code(function.__code__) != "user":
        return value
    parameters = value.cache_parameters()
    results: list[Any] = []

    def called(*args: Any, **kwargs: Any) -> Any:
        return results.pop() if results else inner(*args, **kwargs)  # the results fill the cache

    new = functools.lru_cache(**parameters)(called)
    for entry in _entries_of(value, is_typed=parameters["typed"]):
        results.append(copy(entry.result))
        new(*map(copy, entry.args), **{name: copy(item) for name, item in entry.kwargs.items()})
    attributes = {name: copy(item) for name, item in vars(value).items() if name != "__wrapped__"}
    vars(new).clear()  # the name of `called`
    vars(new).update(attributes, __wrapped__=inner)
    return new


def _entries_of(value: Any, *, is_typed: bool) -> Iterator[_Entry]:
    """Yield the entries of an `lru_cache`, the most recently used entry last.

    An unbounded cache is a dict from keys to results, a bounded cache a dict from keys to nodes of a linked list. For a bounded
    cache, `gc.get_referents` returns the key, result and class of each node in turn (Modules/_functoolsmodule.c,
    `lru_cache_tp_traverse`).
    """
    referents = gc.get_referents(value)
    marks = {id(referent) for referent in referents if type(referent) is object}
    cache = next((each for each in referents if type(each) is dict and each is not vars(value)), {})
    if value.cache_parameters()["maxsize"] is None:
        pairs = list(cache.items())
    else:
        keys, link = {id(key) for key in cache}, type(next(iter(cache.values()), None))
        triples = zip(referents, referents[1:], referents[2:], strict=False)
        pairs = [(key, result) for key, result, cls in triples if cls is link and id(key) in keys]
    for key, result in pairs[: len(cache)]:
        yield _entry(key, result, marks, is_typed=is_typed)


def _entry(key: Any, result: Any, marks: set[int], *, is_typed: bool) -> _Entry:
    if type(key) in (int, str):
        return _Entry((key,), {}, result)
    items = list(key)  # positional arguments; a mark, names and values of keyword arguments; if typed, the classes of all
    mark = next((index for index, item in enumerate(items) if id(item) in marks), None)
    if mark is None:
        return _Entry(tuple(items[: len(items) // 2] if is_typed else items), {}, result)
    named = items[mark + 1 :]
    count = (len(named) - mark) // 3 if is_typed else len(named) // 2
    return _Entry(tuple(items[:mark]), {named[2 * index]: named[2 * index + 1] for index in range(count)}, result)
