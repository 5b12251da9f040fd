"""Find the names of parameters and modules: "layers.0.weight", "layers.0", in the modules that are alive in this process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch

_found: list[weakref.ref[Any]] = []  # the outermost modules of the last search, which takes about 0.1 s in each million objects


def names_in_modules(ids: Set[int]) -> dict[int, str]:
    """Return the names of parameters and modules by `id()`, as the outermost module names them; others are left out.

    The name of the outermost module is its class. The attribute `_orig_mod` of `torch.compile` is no part of a name.

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
        for path, value in _paths(module, (), set()):
            if id(value) in ids:
                found.setdefault(id(value), ".".join(path) or type(value).__name__)
    return found


def _paths(module: Any, path: tuple[str, ...], seen: set[int]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a module, its parameters, and the modules in it, each with its path."""
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    for name, parameter in module.__dict__.get("_parameters", {}).items():
        yield (*path, name), parameter
    for name, child in module.__dict__.get("_modules", {}).items():
        if child is not None:
            yield from _paths(child, path if name == "_orig_mod" else (*path, name), seen)
