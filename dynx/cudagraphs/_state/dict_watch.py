"""Detect changes of dicts with the fastest method that this version of Python supports.

CPython 3.12 and later have `PyDict_AddWatcher` and `PyDict_Watch`: a dict calls its watchers before each change (except if a
key is assigned the value that it has), so that the cost of a check does not depend on the number of dicts. Earlier versions
have dict versions, which torch compares. CPython 3.13.0 does not call watchers for attribute assignments: where neither method
works, values are compared.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from operator import is_
from typing import Any
from weakref import finalize, ref

from dynx._torch.ops.fast_checks import change_check

Dicts = Sequence[dict[Any, Any]]
Predicate = Callable[[], bool]


def unchanged(dicts: Dicts) -> Predicate:
    """Return a predicate that is true as long as none of the dicts has changed."""
    for method in (_watched, change_check):
        if _notices_changes(method):
            return method(dicts)
    return _compared(dicts)


@cache
def _notices_changes(method: Callable[[Dicts], Predicate]) -> bool:
    """Return whether predicates that `method` makes detect attribute assignments, even by bytecode that CPython specialized."""

    class Owner:
        number = 0

    def store(owner: Any, numbers: range) -> None:
        for owner.number in numbers:
            pass

    owner = Owner()
    try:
        store(owner, range(100))
        is_unchanged = method([owner.__dict__])
        before = is_unchanged()
        store(owner, range(100, 200))
        return before and not is_unchanged()
    except (AttributeError, RuntimeError):  # this Python has no watchers, or all eight are in use
        return False


def _compared(dicts: Dicts) -> Predicate:
    values = [value for d in dicts for value in d.values()]
    lengths = list(map(len, dicts))
    held = list(dicts)
    return lambda: list(map(len, held)) == lengths and all(map(is_, chain.from_iterable(d.values() for d in held), values))


class _Flag(list[None]):
    """A list that has one element until one of its registered dicts changes: then the dict watcher clears the list.

    Its `__len__` serves as the predicate of `unchanged`, so that a check calls no Python function.
    """

    __slots__ = ("__weakref__",)


# by the ids of a dict and a flag; a dict that is freed calls its watchers too
_flags: dict[int, dict[int, ref[_Flag]]] = {}


@cache
def _watcher() -> int:
    """Register a dict watcher and return its number. Raises RuntimeError if all eight watchers of CPython are in use."""
    number: int = ctypes.pythonapi.PyDict_AddWatcher(_on_change)
    atexit.register(_stop)
    return number


def _watched(dicts: Dicts) -> Predicate:
    flag = _Flag([None])
    addresses = tuple({id(d) for d in dicts})
    for d in dicts:
        ctypes.pythonapi.PyDict_Watch(_watcher(), ctypes.py_object(d))
        _flags.setdefault(id(d), {})[id(flag)] = ref(flag)
    finalize(flag, _forget, id(flag), addresses)  # without references to the dicts, which may refer to the flag
    return flag.__len__  # type: ignore[return-value]


def _forget(flag: int, addresses: Sequence[int]) -> None:
    """Unregister a `_Flag` that was deleted: `flag` was its id, and `addresses` are the ids of the dicts registered for it."""
    for address in addresses:
        flags = _flags.get(address, {})
        flags.pop(flag, None)
        if not flags:
            _flags.pop(address, None)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _on_change(event: int, address: int, key: int, value: int) -> int:
    for reference in tuple(_flags.get(address, {}).values()):
        if (flag := reference()) is not None:
            flag.clear()
    return 0


def _stop() -> None:
    """Unregister the watcher at exit, before Python clears the dicts."""
    _flags.clear()
    ctypes.pythonapi.PyDict_ClearWatcher(_watcher())
