"""Whether dicts have changed, told in as little time as this Python allows.

CPython 3.12 and later have `PyDict_AddWatcher` and `PyDict_Watch`: a dict calls its watchers before each change (not where a
value is set to what it is), so that a check costs nothing however many dicts there are. Before, torch compares their versions.
CPython 3.13.0 forgets to tell of attributes: where neither tells, values are compared.
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
Check = Callable[[], bool]


def unchanged(dicts: Dicts) -> Check:
    """Give what tells whether none of some dicts was changed since now."""
    for way in (_watched, change_check):
        if _tells(way):
            return way(dicts)
    return _compared(dicts)


@cache
def _tells(way: Callable[[Dicts], Check]) -> bool:
    """Try whether changes to attributes are told, in code that ran before too."""

    class Owner:
        number = 0

    def store(owner: Any, numbers: range) -> None:
        for owner.number in numbers:
            pass

    owner = Owner()
    try:
        store(owner, range(100))
        check = way([owner.__dict__])
        before = check()
        store(owner, range(100, 200))
        return before and not check()
    except (AttributeError, RuntimeError):  # this Python has no watchers, or none left
        return False


def _compared(dicts: Dicts) -> Check:
    values = [value for each in dicts for value in each.values()]
    lengths = list(map(len, dicts))
    held = list(dicts)
    return lambda: (
        list(map(len, held)) == lengths and all(map(is_, chain.from_iterable(each.values() for each in held), values))
    )


class _Flag:
    """Whether one of some dicts has changed."""

    __slots__ = ("__weakref__", "is_changed")

    def __init__(self) -> None:
        self.is_changed = False


_flags: dict[int, dict[int, ref[_Flag]]] = {}  # by the addresses of a dict and of the flag; a dict tells of its end too


@cache
def _watcher() -> int:
    """Register a watcher, of which CPython has eight; raises where there is none."""
    number: int = ctypes.pythonapi.PyDict_AddWatcher(_tell)
    atexit.register(_stop)
    return number


def _watched(dicts: Dicts) -> Check:
    flag = _Flag()
    addresses = tuple({id(each) for each in dicts})
    for each in dicts:
        ctypes.pythonapi.PyDict_Watch(_watcher(), ctypes.py_object(each))
        _flags.setdefault(id(each), {})[id(flag)] = ref(flag)
    finalize(flag, _forget, id(flag), addresses)  # not the dicts, from which there may be a way to the flag
    return lambda: not flag.is_changed


def _forget(flag: int, addresses: Sequence[int]) -> None:
    """Forget a flag. The dicts go on telling, if they live, to nobody."""
    for address in addresses:
        there = _flags.get(address, {})
        there.pop(flag, None)
        if not there:
            _flags.pop(address, None)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _tell(event: int, address: int, key: int, value: int) -> int:
    for found in tuple(_flags.get(address, {}).values()):
        if (flag := found()) is not None:
            flag.is_changed = True
    return 0


def _stop() -> None:
    """Let go of all dicts, which are changed when Python ends."""
    _flags.clear()
    ctypes.pythonapi.PyDict_ClearWatcher(_watcher())
