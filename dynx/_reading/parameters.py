"""Find the names of parameters: "layers.0.weight", in the modules that are alive in this process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch

_found: list[weakref.ref[Any]] = []  # the outermost modules of the last search, which takes about 0.1 s in each million objects


def names_of_parameters(ids: Set[int]) -> dict[int, str]:
    """Return the names of parameters by `id()`, as the outermost module names them; those of no module are left out.
    The attribute `_orig_mod` of `torch.compile` is no part of a name.

    Runs no code of the modules: it reads the tables `_parameters` and `_modules`.
    """
    if not ids:
        return {}
    names = _names([module for reference in _found if (module := reference()) is not None], ids)
    if len(names) == len(ids):
        return names
    outermost = _outermost()
    _found[:] = map(weakref.ref, outermost)
    return _names(outermost, ids)


def _outermost() -> list[Any]:
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module) and "_parameters" in each.__dict__]
    inner = {id(child) for module in modules for child in module.__dict__["_modules"].values() if child is not None}
    return [module for module in modules if id(module) not in inner]


def _names(modules: Sequence[Any], ids: Set[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for module in modules:
        for name, parameter in _parameters(module, "", set()):
            if id(parameter) in ids:
                found.setdefault(id(parameter), name.replace("_orig_mod.", ""))
    return found


def _parameters(module: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    for name, parameter in module.__dict__.get("_parameters", {}).items():
        yield prefix + name, parameter
    for name, child in module.__dict__.get("_modules", {}).items():
        if child is not None:
            yield from _parameters(child, f"{prefix}{name}.", seen)
