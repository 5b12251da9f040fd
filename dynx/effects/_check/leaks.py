"""Find leaks: objects of the program itself that the calls of a check changed, although the calls should change only copies.

All objects of the program are described before the calls, and compared afterwards.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from types import FrameType, FunctionType, ModuleType
from typing import Any

from dynx._reading.owner import owner_of_module
from dynx._reading.user_location import Owner, owner_of_file
from dynx._reading.variables import is_name_of_user
from dynx.effects._world.watch import Watch

_CHANGED_BY_COMPILATIONS: tuple[Owner, ...] = ("torch", "dynx", "python")  # their modules hold counters and caches


def watch_program(roots: Iterable[tuple[str, Any]], backend: Any, libraries: Iterable[ModuleType]) -> Watch:
    """Return a Watch that remembers the objects of a program, including its modules and the local variables of all callers.

    `roots` are pairs of path and object: the function, the arguments and `state` of the check. The data of `libraries`, modules
    that the function uses, is watched too. Objects of `backend` are not watched: it may change them, such as a list of graphs.
    """
    modules = _modules_by_owner()
    others = chain.from_iterable(modules[owner].values() for owner in _CHANGED_BY_COMPILATIONS)
    watched = (*roots, *modules["user"].items(), *_variables_of_callers(), *_data_of(libraries))
    return Watch(watched, [backend], _ids_held_by(others))


def _modules_by_owner() -> dict[Owner, dict[str, ModuleType]]:
    modules: dict[Owner, dict[str, ModuleType]] = defaultdict(dict)
    for name, module in sys.modules.copy().items():  # a list of pairs would slow the garbage collector
        if isinstance(module, ModuleType):
            modules[owner_of_module(module)][name] = module
    return modules


def _ids_held_by(modules: Iterable[ModuleType]) -> set[int]:
    """Return the `id()` of the value of each attribute of these modules."""
    return {id(value) for module in modules for value in tuple(vars(module).values())}


def _data_of(modules: Iterable[ModuleType]) -> Iterator[tuple[str, Any]]:
    for module in modules:
        for name, value in tuple(vars(module).items()):
            if is_name_of_user(name) and not isinstance(value, (type, ModuleType, FunctionType)):
                yield f"{module.__name__}.{name}", value


def _variables_of_callers() -> Iterator[tuple[str, Any]]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if owner_of_file(frame.f_code.co_filename).kind == "user" and frame.f_code.co_name != "<module>":
            yield from ((f"{name} in {frame.f_code.co_name}", value) for name, value in frame.f_locals.items())
        frame = frame.f_back
