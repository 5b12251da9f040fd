"""Notice what calls change outside of their copies: the objects of the program itself are compared before and after."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType, FunctionType, ModuleType
from typing import Any

from dynx._reading.owner import owner_of_module
from dynx._reading.variables import is_name_of_user
from dynx._trace.user_location import owner_of_file
from dynx.effects._world.watch import Watch
from dynx.records.check import Leak


def watch_program(roots: Iterable[tuple[str, Any]], backend: Any, libraries: Iterable[ModuleType]) -> Watch:
    """Remember what the objects of a program consist of: of its modules, and of the local variables of all callers too.

    Args:
        roots: What the calls are made with, by path.
        backend: What it keeps of its own, such as a list of the graphs that it compiled, may change.
        libraries: Modules of libraries that the function uses, whose data is watched.
    """
    return Watch((*roots, *_of_process(), *_data_of(libraries)), [backend], _ids_of_others())


def leaks_in(watch: Watch) -> tuple[Leak, ...]:
    """Return what has changed since then."""
    return tuple(Leak(*changed) for changed in watch.changed())


def _ids_of_others() -> set[int]:
    """Return the ids of what modules of torch, dynx and Python hold, such as torch's counters, which compilations change."""
    modules = [module for module in tuple(sys.modules.values()) if isinstance(module, ModuleType)]
    others = [module for module in modules if owner_of_module(module) in ("torch", "dynx", "python")]
    return {id(value) for module in others for value in tuple(vars(module).values())}


def _data_of(modules: Iterable[ModuleType]) -> Iterator[tuple[str, Any]]:
    for module in modules:
        for name, value in tuple(vars(module).items()):
            if is_name_of_user(name) and not isinstance(value, (type, ModuleType, FunctionType)):
                yield f"{module.__name__}.{name}", value


def _of_process() -> Iterator[tuple[str, Any]]:
    for name, module in tuple(sys.modules.items()):
        if isinstance(module, ModuleType) and owner_of_module(module) == "user":
            yield name, module
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if owner_of_file(frame.f_code.co_filename).kind == "user" and frame.f_code.co_name != "<module>":
            yield from ((f"{name} in {frame.f_code.co_name}", value) for name, value in frame.f_locals.items())
        frame = frame.f_back
